"""The records of a log dir as a consumer gets them, in bulk: a plan of what is read of which segment (`plan`, for a
`request`), and the reading of it. In the plan, `positions` has the logs of a partition as if they were one
(`JoinedLogs`), and says where reading begins and ends in a log; `ends` where a partition ends, `left_out` what is not
read, and `transactions` which were aborted; `brokers_metadata` and `cataloged_logs` tell what need not be looked up in
logs. The plan consists of small values that can be sent to other processes; to read a segment, its part of the plan
(`segment_read`) is enough: `walk` walks over its batches (`aborted_kernel` marks those of aborted transactions), `rows`
makes records of them. `who_wrote` reads for a single record.
"""
