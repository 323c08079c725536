"""Spark itself, as a job uses it. `session` starts and ends a job's session and its JVM, checks that the session's
master can be reached, makes errors of Spark and of its tasks readable, and opens paths by Hadoop. `engine` has Spark's
executors do units of work, counts what their tasks do, and stages their rows. `local_rows` makes DataFrames and columns
of what the driver has in Python: rows, values, types, conditions. `spark_tables` makes a catalog's Delta tables, reads
them, commits to them, again if another job commits, and maintains them.
"""
