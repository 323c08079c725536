"""Spark itself: its JVM and `session`, its executors (`engine`), its errors on one line, the conversion of rows
(`local_rows`), and a catalog's Delta tables: `spark_tables` reads them, commits to them and maintains them.
"""
