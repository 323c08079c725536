"""Engines do the work of an operation, unit by unit: here processes of this machine, elsewhere Spark's executors. What
they find they put into Parquet files, from which it is counted and recorded.
"""
