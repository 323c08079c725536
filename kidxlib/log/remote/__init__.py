"""Remote segments of tiered storage (KIP-405): their records in `__remote_log_metadata`, and their objects.

Objects are in a bucket: the directory or prefix of a storage plugin. No running cluster is asked.
"""
