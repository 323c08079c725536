"""Spark's jobs, clusters and processes."""
