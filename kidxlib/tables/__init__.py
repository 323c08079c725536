"""The catalog's tables. `protocol` is the interface to read and commit them, `delta_tables` makes, reads and writes
them with delta-rs, without Spark: by `data_files` and `delta_commits`, whose lock Spark's commits hold, too, with
`delta_maintenance` for their upkeep. `memory_tables` has tables that end with a run, and changes that wait to be
committed together.
"""
