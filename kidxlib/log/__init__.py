"""The reading side of Kafka's logs, as a broker answers: `segment` is Kafka's `LogSegment`, `log` its `UnifiedLog`
(`overlaps` are of logs that hold the same offsets), with the leader epochs of a log (`LeaderEpochCache`). A cluster's
metadata on topics and brokers is read from a log dir's `__cluster_metadata-0` as a broker reads it: the latest
snapshot, then the records after it (`metadata_replica`), which make an image (`metadata_image`). No running cluster is
asked.
"""
