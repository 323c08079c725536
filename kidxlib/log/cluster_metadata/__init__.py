"""What a cluster's own metadata says of topics and brokers, as a log dir has it in `__cluster_metadata-0`.

It is read as a broker reads it: the latest snapshot, and the records behind it. Nothing is asked of a running cluster.
"""
