"""Tiered storage: audits, repairs of its objects, and what other settings would free. `audit_tiered` has the steps of
an audit: `what_to_audit` plans it, `find` has workers look (`audit_work`), `numbers` are sizes, lag and savings.
`repair` has the steps of a repair. `local_partitions` says what leaders do to remote segments as they start.
"""
