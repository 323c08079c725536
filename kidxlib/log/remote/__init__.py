"""Remote segments of tiered storage (KIP-405): their records in `__remote_log_metadata`, from log dirs or exports
(`metadata_topic`); which segments and leader epochs brokers read after all of these (`segments`); a plugin's
directories and names of objects in a bucket, and its manifests (`layout`), from which `uploaded` finds segments whose
metadata is lost. A bucket is the directory or prefix of a storage plugin. No running cluster is asked.
"""
