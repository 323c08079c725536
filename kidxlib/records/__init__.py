"""Batches and records in the bytes of a log, of all three message formats. One by one: `batch_headers` goes from header
to header; `reader` reads records, finds one by its timestamp, and says what is malformed; `control` reads transaction
markers. In bulk, by compiled loops: `batch_table` walks over headers and makes rows of them (`BatchWalk`);
`placed_records` finds the addresses of the parts of records, and leaves to `reader` the batches that its loop refuses;
`arrow_records` makes tables of these, and `arrow_columns` each single column and Arrow array; `record_times` are the
timestamps of a batch's records; `header_search` finds a batch for each of many offsets or times. `wanted_records` are
ranges of offsets and times, and `batch_writer` writes batches. Most loops are in a `…_kernel`: `read_kernel` reads
single fields and records, `place_kernel` is that of `placed_records`, `fill_kernel` fills Arrow's buffers.
"""
