"""What `kafka-dump-log` prints of logs, index files, snapshots and checkpoints: `source` says what a file to dump is,
and which other files it needs; `read` gives its items, as a `release` of Kafka shows them; `decoders` decodes the keys
and values of Kafka's own topics, and `items` has all items, and what is shown of them as lines and as JSON.
"""
