"""The catalog's tables, read and committed: what both engines ask of them, and how delta-rs does it without Spark."""
