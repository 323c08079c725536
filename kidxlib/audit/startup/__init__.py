"""The start-up simulation: what a broker would do at its next start. `loader` does what a broker does as it loads a
partition's log, and gives a `simulation`. What keeps a node from starting is an obstacle (`obstacles`, which finds
those of single files): by its log dirs (`node`), by the `directories` in them, the rights of the broker's user there,
and the cluster's metadata, by its own copy of that (`metadata_log`). `last_stop` says how a broker stopped, and what
its checkpoints lack, and `absent` which partitions have no directory in the log dirs that are listed (`ListedLogDir`).
"""
