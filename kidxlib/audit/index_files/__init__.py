"""Verdicts on index and auxiliary files, which are compared with what recovery makes of the logs: `sparse_indexes` has
those on an `.index` or `.timeindex`, `transaction_index` on a `.txnindex`, `snapshot` on a producer snapshot (it also
knows the logs that the cleaner has cleaned since), and `leader_epochs` on a `leader-epoch-checkpoint`, which may tell
of lost logs. `index_file` reads the index files, and has the findings that all kinds of them share
(`IndexFileFindings`).
"""
