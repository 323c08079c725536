"""The parts that runs of commands share: settings, sources, time, catalog, and the report of how the run ended."""
