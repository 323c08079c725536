"""A build: listed, compared with the catalog, read, finished, recorded and reported. `build` has the steps, with a
catalog and without, and holds the locks: `planning` says what is new, `waves` reads it, records each wave at once and
has workers end partitions, and `build_report` says how it went, and what damage the catalog has then. Workers begin
with `scan_work`, which reads segments, and `finish_work`, which finishes partitions.
"""
