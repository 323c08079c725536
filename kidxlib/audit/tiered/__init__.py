"""What is wrong with remote segments (KIP-405): their metadata, their objects and the bytes of these are compared.
`listed_partition` audits by a listing (`listing` compares names and sizes), `segment_logs` by the bytes; `metadata`
has what is wrong by metadata alone, `local_epochs` by a log dir's leader epochs. `remade` makes objects anew.
"""
