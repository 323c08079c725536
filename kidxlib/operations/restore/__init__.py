"""`restore`: a cluster back from its brokers' disks, into new directories. `restore` has the steps. What is there: the
`inventory` lists replicas and brokers of the sources, `bucket` makes a source of a bucket (`bucket_protection`: whether
the new cluster could delete there), `surviving_metadata` takes the newest metadata, and says what cannot come back, and
`coordinators` read offsets of groups, and transactions. What is decided: `choose_replicas` says which lead, and to
which log dir each goes, `until_offsets` where partitions end that somebody gives ends for; the `restore_plan` collects
it, with losses and refusals. What is made: the `restored_cluster` has topics, settings and feature levels; `new_nodes`
formatted directories and their space. `apply` copies, and has workers digest records (`contents_work`,
`record_digest`); `check` asks the running cluster.
"""
