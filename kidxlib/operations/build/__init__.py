"""A build: listed, compared with the catalog, read, finished, recorded and reported. `build` has the steps, with a
catalog and without: `planning` says what is new, `waves` reads it, records each wave at once and ends partitions, and
`build_report` says how it went.
"""
