"""From directories to index files: `source` says what a source is, and where the segments of a row of the catalog are,
`listing` lists it, and `plan` has the listed segments, and defines the tasks of workers. A `ScanTask` is a log to scan,
whose indexes `segments` publishes; a `SegmentTask` is for files that depend on the segments before, which
`finish_partition` publishes. `changes` compares the listed segments with the catalog, by `known_segments`, which also
says what is missing. `bins` shares work out, and `build_counts` says how much a build read and wrote.
"""
