"""A broker's recovery of a log. One compiled loop reads a segment's batch headers and returns its index files, facts,
producer events and leader epochs (`segment`; `scanned_logs` for many logs). `record_facts` has facts of all bytes. The
fold over a partition (`partition_fold`) returns the state of producers and aborted transactions. But for
`record_facts`, it needs neither `records` nor `index`: behind damage, `check_kernel` searches whole batches by itself.
"""
