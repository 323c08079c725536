"""Batches and records in the bytes of a log, of all three message formats. `reader` reads them one by one, finds one by
its timestamp, and says what is malformed. In bulk, by compiled loops, `batch_table` walks over headers and makes rows
of them (`BatchWalk`), `placed_records` finds the addresses of the parts of records, and `arrow_records` makes Arrow
tables of these (`fill_kernel` fills their buffers). Loops: `read_kernel` reads single fields and records,
`place_kernel` places records, `batch_table_kernel` fills a `batch_table`. Batches that the loops refuse are left to
`reader`. `header_search` finds a batch, `batch_headers` goes from header to header. `wanted_records` are ranges of
offsets and times; `control` reads transaction markers.
"""
