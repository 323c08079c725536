"""Remote segments of tiered storage (KIP-405): what `__remote_log_metadata` says of them, and their objects.

These lie in a bucket: the directory or prefix below which a storage plugin puts them. No running cluster is asked.
"""
