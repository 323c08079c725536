"""The reading side of Kafka's logs, as a broker answers: `segment` is Kafka's `LogSegment`, `log` its `UnifiedLog`
and the leader epochs of a log (`LeaderEpochCache`), `fetch` what a fetch returns, `roll` when a segment is full.
"""
