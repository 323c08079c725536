"""The records of a log dir as a consumer gets them, in bulk. A caller's arguments become a `request`, and `plan` plans
what is read of which segment. `positions` finds by an `.index` where reading begins and ends in a log, and has a
partition's logs as if they were one (`JoinedLogs`); `partition_ends` says by checkpoints where a partition begins and
ends. `left_out` has what is missing or not read, why, and what to do. `brokers_metadata` tells of log dirs and replicas
by the cluster's metadata, `cataloged_logs` of logs by a catalog. `transactions` finds aborted transactions
(`aborted_ranges`, `aborted_kernel`). Any process can read a `segment_read`, a part of a plan: `walk` walks over batches
and tells damage, `rows` makes rows of records, or counts them. `who_wrote` reads for a single record.
"""
