"""Batches and records of a log in bulk: `batch_table` walks over headers and makes rows of them (`BatchWalk`), and
`decode` finds the addresses of the parts of records. The loops are compiled. `kidxlib.records.reader` reads the batches
that they refuse, and says what is malformed.
"""
