"""Kafka's messages in its own topics: their `definitions` as data, taken from Kafka's jars, and one `interpreter` for
all, which reads, writes and shows them as JSON. `typed_records` have a type and a version before them;
`remote_log_metadata` are those of tiered storage. A definition says how each version of a message is laid out. Kafka
generates classes from these definitions; here they are read as they are. `python -m tests.kafka.definitions` makes
`definitions.json` anew.
"""
