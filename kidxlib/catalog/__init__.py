"""The tables of the catalog: each is a frozen dataclass whose fields are the columns with their meanings. Arrow's
schema, Spark's, the Delta tables and `docs/catalog.md` follow from it. Views name the columns that an operation
reads.
"""
