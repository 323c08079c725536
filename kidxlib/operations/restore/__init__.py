"""`restore`: a cluster back from its brokers' disks, into new directories: its metadata first, then its logs. `restore`
has the steps: `inventory` reads the sources, but for what `scan_cache` has, `restore_plan` sorts out what may be
restored (`surviving` metadata, `choose` for leaders, `subset` for `--topics`, `until` for given ends), `targets` reads
the new brokers, `apply` carries the plan out (`copies` copies logs, `contents` says what consumers will get), and
`check` is `kidx restore-check`, which asks the `running_cluster`.
"""
