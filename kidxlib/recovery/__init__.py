"""A broker's recovery of a log. One compiled loop reads batch headers, and `recover` returns of a segment its index
files, `facts`, producer events and leader epochs. `record_facts` has facts of all bytes. The fold over a partition
(`partition_fold`) returns the state of producers and aborted transactions. `coarsen` makes indexes of another interval
from those that are there, or from headers, `past_end` says what lies behind the valid batches, `outcome` how a scan
ended, and `kept_scans` keeps scans for a second reading. But for `record_facts`, this package needs neither `records`
nor `index`: behind damage, `check_kernel` searches whole batches by itself.
"""
