"""From directories to index files: `discover` and `listing` list sources, `listed` is the table of what is there,
`skipped` what was passed over, `vanished` what is missing from it. `plan` has their segments, `changes` compares them
with the catalog. `tasks` are what workers get (`ScanTask`): `segments` scans and publishes, and `finish_partition`
publishes from the scans (`SegmentTask`) what depends on the order of segments, as `finish_files` says.
"""
