"""Engines do the work of an operation, unit by unit. `protocol` is the interface `Engine`, and checks that workers see
the logs that were listed. `local` is the engine of this machine, with its worker processes. `work` has what all engines
use: `Work` and its units, how any process does them (`do_unit`), the rows that they share, and the rows that they leave
in Parquet files (`StagedFiles`). `shares` cuts rows of a catalog into units, and `without_pandas` lets workers start
sooner.
"""
