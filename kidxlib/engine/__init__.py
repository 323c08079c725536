"""Engines do the work of an operation, unit by unit: here in processes of this machine (`local`), elsewhere on Spark's
executors. They write the rows to Parquet files, from which a run counts and records them (`work`). `shares` cuts rows
of a catalog into units.
"""
