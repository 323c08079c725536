"""The tables of the catalog: each is a frozen dataclass whose fields are the columns with their meanings. `rows` makes
a class a row of a table (`row`, `column`), and of rows of several kinds one schema. Arrow's schema, Spark's, the Delta
tables and `docs/catalog.md` follow from it. Views name the columns that an operation reads. `results` are the rows that
workers return.
"""
