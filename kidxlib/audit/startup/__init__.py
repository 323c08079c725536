"""The start-up simulation: what a broker would do at its next start. `loader` does what a broker does as it loads a
partition's log, and gives a `simulation`. An obstacle keeps a node from starting, from a log dir, or from records.
These files find obstacles: `obstacles` in single files, `node` in the log dirs as a whole and in `meta.properties`,
`directories` in the directories within (their names, the rights of the broker's user, what the cluster's metadata has),
and `metadata_log` in the node's own copy of the metadata. `last_stop` says how a broker stopped, and what its
checkpoints lack, and `absent` which partitions have no directory in the log dirs that are listed (`ListedLogDir`).
"""
