"""The parts that all jobs share: `backend` opens Spark and the catalog, which may be named as a database;
`spark_places` copies files that only Spark reaches; `packages` are for clusters. The package `submit` is
./spark-submit.sh itself.
"""
