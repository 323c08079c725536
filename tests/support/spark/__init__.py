"""Spark's jobs, sessions, clusters and processes in tests."""
