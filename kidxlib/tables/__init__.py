"""The catalog's tables. `protocol` has the interfaces to read them, to commit to them and to maintain them
(`Maintenance`), with the questions and counts that these take and give. With delta-rs, without Spark, `delta_tables`
makes and reads them, `data_files` reads, writes and removes their files, and cuts a table into ranges of keys for them,
`delta_commits` commits these files (Spark's commits take the same lock), and `delta_maintenance` compacts and vacuums.
`memory_tables` has tables that end with a run, and changes that wait to be committed together.
"""
