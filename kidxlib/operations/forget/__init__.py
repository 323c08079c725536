"""A source that is taken out of a catalog: its rows, counted and removed."""
