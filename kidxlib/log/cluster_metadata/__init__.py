"""A cluster's metadata on topics and brokers, read from a log dir's `__cluster_metadata-0`.

It is read as a broker reads it: the latest snapshot, then the records after it. No running cluster is asked.
"""
