"""The catalog's tables. `protocol` is the interface to read and commit them, `delta_tables` the implementation with
delta-rs, without Spark: by `delta_commits` and `data_files`, with `delta_maintenance` for their upkeep. `memory_tables`
has tables that end with a run, and changes that wait to be committed together. `commit_lock` is held by every commit,
by Spark's too.
"""
