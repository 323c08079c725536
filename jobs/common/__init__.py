"""The parts that all jobs share: Spark and the catalog (`backend`), places of files that only Spark reaches
(`spark_places`), `packages` for clusters, and ./spark-submit.sh itself.
"""
