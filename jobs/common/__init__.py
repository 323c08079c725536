"""The parts that all jobs share: session, engine, catalog tables, places of files that only Spark reaches, packages for
clusters, and ./spark-submit.sh itself.
"""
