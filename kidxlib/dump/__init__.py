"""What `kafka-dump-log` prints of logs, index files, snapshots and checkpoints: `source` says what a file is, `read`
gives its items, `decoders` what is in Kafka's own topics, and `items` has all items, and their lines.
"""
