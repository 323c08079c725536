"""The catalog's tables: the interface to read and commit them, and its implementation with delta-rs, without Spark."""
