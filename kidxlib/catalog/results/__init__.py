"""The rows that workers give: what they found, before a run has recorded it."""
