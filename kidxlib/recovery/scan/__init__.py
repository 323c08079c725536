"""The compiled scan of logs: its loops (`scan_kernel`, and `ordinary_kernel` for runs of ordinary batches), their
state between chunks (`scan_state`), and their output (`written_kernel`, `header_facts_kernel`).
"""
