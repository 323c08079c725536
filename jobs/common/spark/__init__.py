"""Spark itself: its JVM and session, its executors, its errors as one line, and rows on their way to it and back."""
