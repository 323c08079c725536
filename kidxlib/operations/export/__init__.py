"""Exports: the records of a log dir as files of Parquet, Arrow or JSON, in parts that a later run takes up."""
