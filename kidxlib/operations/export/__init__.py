"""Exports: the records of a log dir as files of Parquet, Arrow or JSON lines, in parts that a later run takes up. All
of it is in `export`: the request, the plan, the formats, and the staging of the parts. Only the compiled loops that
measure and write texts as JSON are in `json_kernel`.
"""
