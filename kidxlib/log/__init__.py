"""The reading side of Kafka's `LogSegment` and `UnifiedLog`: which batch holds an offset or a time, what a fetch
returns, which epoch an offset has.
"""
