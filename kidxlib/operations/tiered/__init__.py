"""Tiered storage: audits, repairs of its objects, and what other settings would free. `audit_tiered` has the steps of
an audit: `remote_metadata` is read, `bucket_audit` plans it, by what is known of topics, and has workers look
(`audit_work`), `sizes_and_lag` are its numbers, and list the local logs. `repair` has the steps of a repair
(`repair_work` is that of workers). `local_partitions` says what leaders do to remote segments as they start.
"""
