"""What is wrong with remote segments (KIP-405): their metadata, their objects and the bytes of these are compared.
`remote_finding` has a finding on one, its row, and what to do. `listing` audits by metadata and a listing of the
bucket, and finds stalled copies; `segment_logs` audits by the bytes of objects, and makes objects anew from logs;
`remote_segment` says which segments these read or remake (`SegmentsToRemake`), and reads their contents. `local_log`
compares a log dir's leader epochs with those of a `TieredPartition`, makes its `leader-epoch-checkpoint` again, and
says what is not ready to be copied.
"""
