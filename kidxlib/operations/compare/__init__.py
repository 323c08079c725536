"""Two places compared (`compare_places`): a log dir and its copy (`copy`, of an object store `copy_in_store`), two
replicas (`replica`), or two sources of a catalog. `place` has both sides before a log is read, `file_pairs` compares
logs and files byte by byte, `comparison` has the findings and what fails a gate. `catalog_replicas` has the rules for
replicas of several sources: it compares digests of segments (in the loop of `catalog_replica_kernel`), and logs where
these can be read here, and `catalog_replica_verdict` says of each replica what came of that.
"""
