"""The start-up simulation: what a broker would do at its next start. `loader` does what a broker does as it loads a
partition's log, and gives a `simulation`. `last_stop` says how a broker stopped (`PartitionStop`), which checkpoints
are lost, and whether a log dir is of another time than the cluster's metadata; `absent` finds partitions without a
directory. An obstacle keeps a node from starting, from a log dir, or from records. `obstacles` reads checkpoints and
`partition.metadata` as Kafka does, and names of files; `meta_properties` reads `meta.properties`, and tells whose a log
dir is; `directories` looks at directories in a log dir: names (`-delete`, `-stray`, `-future`), rights, assignments;
`metadata_log` at the node's own copy of the metadata. `node` has the obstacles of all log dirs together.
"""
