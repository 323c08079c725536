"""`forget_source`: the rows of a source, counted and removed."""
