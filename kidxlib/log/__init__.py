"""Kafka's `LogSegment` and `UnifiedLog`, as far as they answer questions: which batch holds an offset or a time, what a
fetch returns, which epoch an offset has.
"""
