"""Engines do the work of an operation, unit by unit. `protocol` is the interface `Engine`; `local` does units in
processes of this machine, or in the command itself, until it is interrupted. `work` has what goes in and what comes
out: units, the rows that they share, and the rows that they leave in Parquet files. `shares` cuts rows of a catalog
into units, and `without_pandas` lets workers start sooner.
"""
