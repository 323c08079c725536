"""`restore`: a cluster back from its brokers' disks, into new directories: its metadata first, then its logs. `restore`
has the steps. `inventory` reads the sources, and `bucket` what they lack (`bucket_protection`: whether the restored
cluster could delete there). `restore_plan` has `choose_replicas` sort out by `surviving_metadata` what may be restored,
and who leads; `until_offsets` has given ends, `coordinators` what groups and transactions need. From all that comes the
`restored_cluster`, which goes to the `new_nodes`: `apply` carries the plan out, with workers that digest contents
(`contents_work`, `record_digest`); and `check` is `kidx restore-check`, which asks the running cluster.
"""
