"""The start-up simulation: what a broker would do at its next start. `loader` does what a broker does as it loads a
partition's log, and gives a `simulation`. What keeps a node from starting is an obstacle (`obstacles`): by its log dirs
(`node`), by names in them (`log_dir_entries`), by the cluster's metadata (`against_metadata`). `last_stop` says how a
broker stopped, `markers` which markers of a clean stop are untrue, and `absent` which partitions have no directory.
"""
