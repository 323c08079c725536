"""Remote segments of tiered storage (KIP-405): their records in `__remote_log_metadata` (`metadata_topic`), what
brokers read after all of these (`segments`), and the names of their objects (`layout`), from which `uploaded` finds
segments whose metadata is lost. Objects are in a bucket: the directory or prefix of a storage plugin. No running
cluster is asked.
"""
