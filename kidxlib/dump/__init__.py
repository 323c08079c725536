"""What `kafka-dump-log` prints of logs, index files, snapshots and checkpoints, as items and as lines."""
