"""The compiled scan of logs: its loops (`scan_kernel`, and `ordinary_kernel` for runs of ordinary batches), and their
state between chunks (`scan_state`). The loops write index entries and events of producers, also those of control
batches (`written_kernel`), and facts from headers, summed in cells (`header_facts_kernel`).
"""
