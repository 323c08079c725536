"""The catalog's tables. `protocol` has the interfaces to read them, to commit to them and to maintain them
(`Maintenance`). With delta-rs, without Spark, `delta_tables` makes and reads them, `data_files` writes their files,
`delta_commits` commits these (Spark's commits take the same lock), and `delta_maintenance` compacts and vacuums.
`memory_tables` has tables that end with a run, and changes that wait to be committed together.
"""
