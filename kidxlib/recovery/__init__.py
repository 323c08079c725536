"""A broker's recovery of a log. One compiled loop reads a segment's batch headers and returns its index files, facts,
producer events and leader epochs. The fold over a partition returns the state of producers and aborted transactions.
It needs neither `records` nor `index`: behind damage, `check_kernel` searches whole batches by itself.
"""
