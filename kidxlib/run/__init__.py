"""What every run of a command has: settings and sources, the time and the catalog, and how it tells that it ended."""
