"""Batches and records in the bytes of a log, of all three message formats. One by one: `batch_headers` goes from header
to header; `reader` reads records, finds one by its timestamp, and says what is malformed; `control` reads transaction
markers. In bulk, by compiled loops: `batch_table` walks over headers (`BatchWalk`), of which `batch_table_kernel` makes
rows; `placed_records` finds the addresses of the parts of records (`place_kernel`); `record_times` are the timestamps
of a batch's records; `header_search` walks over headers for many offsets, times or file positions. `read_kernel`
decodes single fields and records for such loops. As Arrow: `arrow_records` makes rows of records (`fill_kernel` fills
their buffers), `arrow_batches` rows of batches; `arrow_columns` has what both need: schemas and single arrays.
`wanted_records` are ranges of offsets and times, and `batch_writer` writes batches.
"""
