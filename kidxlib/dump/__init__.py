"""What `kafka-dump-log` prints of logs, index files, snapshots and checkpoints, as items and as lines: `source` says
what a file is, `read` gives its items, `decoders` what is in Kafka's own topics.
"""
