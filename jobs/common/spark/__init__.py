"""Spark itself: its JVM and session, its executors, its errors on one line, and the conversion of rows."""
