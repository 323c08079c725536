"""The Delta tables through Spark: `spark_tables` makes them, upgrades those of an older release, and reads and writes
them, with retries; `spark_maintenance` makes them smaller and faster.
"""
