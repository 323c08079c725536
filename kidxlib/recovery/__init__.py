"""A broker's recovery of a log. `recover` scans logs (with `recovery/scan`), and returns of a segment its index files,
`facts`, producer events and leader epochs. `facts` are counted from headers; `record_facts` has those that need each
byte of a log, such as all records' timestamps (`record_facts_kernel`). `options` are those of the index files, and
`outcome` says how a scan ended. `log_checksums` computes checksums of a log or a large batch, `check_kernel` has the
loops that check batches. `past_end` says what lies behind the valid batches, and finds whole batches there.
`partition_fold` folds a partition's segments to states of producers (`producer_kernel`) and aborted transactions.
`coarsen` makes indexes of another interval from denser ones (`coarsen_kernel`) or headers. `kept_scans` keeps scans for
a second reading.

But for `record_facts` and its loops, no file of this package imports `kidxlib/records`, and none imports
`kidxlib/index`.
"""
