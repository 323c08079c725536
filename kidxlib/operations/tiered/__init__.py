"""Tiered storage: audits, repairs of its objects, and what other settings would free. `audit_tiered` has the steps of
an audit: `remote_metadata` reads the segments' metadata, `bucket_audit` plans by what is known of topics, workers look
at objects (`audit_work`), and `sizes_and_lag` lists the local logs, and has the numbers. `tiered_request` finds the
bucket that a user names. `repair` has the steps of a repair; what its workers do is in `repair_work`.
`local_partitions` says what leaders do to remote segments as they start.
"""
