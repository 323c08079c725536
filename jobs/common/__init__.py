"""The parts that all jobs share. `backend` opens what a job works with: Spark, the catalog, which may be named as a
database, and the maintenance of its tables. `spark_places` copies files that only Spark reaches, and `packages` packs
modules and Python packages for clusters. The package `submit` is ./spark-submit.sh itself.
"""
