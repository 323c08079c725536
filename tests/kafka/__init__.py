"""Kafka itself beside this project: its own classes on generated partitions, and a real broker."""
