"""From directories to index files: `source` says what a source is, and where the segments of a row of the catalog are,
`listing` lists it, and `plan` has the segments with the tasks that workers get. `changes` compares them with the
catalog, by `known_segments`, which also says what is missing. `segments` scans and publishes (`ScanTask`), and
`finish_partition` publishes from the scans (`SegmentTask`) what depends on the order of segments. `bins` shares work
out, and `build_counts` says how much a build read and wrote.
"""
