"""A build: listed, compared with the catalog, read, finished, recorded and reported. `build_request` says what is
asked. `build` has the steps, with a catalog and without, of a dry run and of a repair, and holds the locks. `planning`
finds what is new or has changed. `waves` reads it; each wave is recorded and counted at once, and its partitions are
finished. `build_report` says how it went, and what damage the catalog has then. Workers begin with `scan_work`, which
reads segments, and `finish_work`, which divides partitions into shares and finishes them, by the states that earlier
builds kept.
"""
