"""Tiered storage: audits, and repairs of its objects. `tiered_request` has what is asked: the bucket that a user names,
and where the audit is recorded. `audit_tiered` has the steps of an audit: `remote_metadata` reads the segments'
metadata, `bucket_audit` plans which partitions of the bucket are compared, and records their segments, and workers look
at objects (`audit_work`). `sizes_and_lag` measures logs in log dirs: sizes of topics, how far copying lags, with
findings on that, and what other settings would free. `repair` has the steps of a repair and the outcome of each object;
what its workers do is in `repair_work`. `local_partitions` says what leaders do to remote segments as they start.
"""
