"""A build: listed, compared with the catalog, read, finished, recorded and reported. `build_catalog` has the steps:
`planning` says what is new, `waves` reads it, each wave recorded at once, `finish` ends partitions, `build_run` has the
locks and sweeps what a killed run has left, `build_report` says how it went.
"""
