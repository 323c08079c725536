"""The parts that every command's run shares: settings, sources, time, catalog, and the report of how it ended."""
