"""The checksums of Kafka's log and of object stores: in Python for a few bytes, for compiled loops as C functions."""
