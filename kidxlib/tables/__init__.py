"""The catalog's tables. `protocol` is the interface to read and commit them, `delta_tables` the implementation with
delta-rs, without Spark: by `delta_commits`, with `data_files` for the files of one table and their sizes,
`held_changes` for changes that are committed together, and `delta_maintenance`. `layout` is what Spark writes alike.
"""
