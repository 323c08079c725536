"""What is wrong with remote segments (KIP-405): their metadata, their objects and the bytes of these are compared,
which gives each `finding` and its row. `listing` audits by metadata and a listing of the bucket, and finds stalled
copies; `segment_logs` audits by the bytes, and makes objects anew from logs; a `remote_segment` has what these need;
`local_log` compares a log dir's leader epochs, and says what is not ready to be copied.
"""
