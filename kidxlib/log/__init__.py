"""The reading side of Kafka's logs, as a broker answers. `segment` is Kafka's `LogSegment`; `log` is its `UnifiedLog`,
and its cache of leader epochs (`LeaderEpochCache`); `overlaps` are of logs that hold the same offsets. A cluster's
metadata is read from a log dir's `__cluster_metadata-0`: `metadata_replica` reads the files of that copy, the latest
snapshot and the records after it; `metadata_image` applies them, as far as they are committed, and has the image that
callers ask for: topics, nodes, their releases and settings. No running cluster is asked.
"""
