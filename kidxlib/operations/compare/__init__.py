"""Two places, or two sources of a catalog, compared (`compare_places`). `comparison` has the findings and their kinds,
how each partition compares, and runs the work. `place` has both sides before a log is read, and the findings by
checkpoints, metadata and other small files. Then a log dir is compared with its `copy`, or two replicas by offset
(`replica`); `file_pairs` compares logs and files byte by byte. `copy_in_store` compares a catalog with a copy in an
object store. `catalog_replicas` compares the replicas that a catalog's sources have, by digests of segments (in the
loop of `catalog_replica_kernel`), and by logs where these can be read here; `catalog_replica_verdict` says what came of
it, and which partitions a source lacks.
"""
