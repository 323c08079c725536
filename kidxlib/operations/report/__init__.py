"""The report: one HTML page of what a catalog knows of a fleet's segments, and the same numbers as JSON."""
