"""A broker's recovery of a log. One compiled loop reads batch headers, and `recover` returns of a segment its index
files, `facts`, producer events and leader epochs. `facts` are counted from headers; `record_facts` has those that need
each byte of a log: checksums, and all records' timestamps (`record_facts_kernel`). But for these two, no file of this
package imports `kidxlib/records`, and none imports `kidxlib/index`. The fold over a partition (`partition_fold`)
returns the state of producers and aborted transactions. `coarsen` makes indexes of another interval from those that are
there, or from headers, `past_end` says what lies behind the valid batches, `outcome` how a scan ended, and `kept_scans`
keeps scans for a second reading. `check_kernel` has the loops that check the batches of a log, and search for whole
ones behind damage.
"""
