"""The tables of the catalog: each is a frozen dataclass whose fields are the columns with their meanings. `rows` makes
a class a row of a `Table` (`row`, `column`), and of rows of several kinds one schema. Schemas of Arrow, Spark and Delta
and `docs/catalog.md` follow from it. `tables` has all of them, with the version of the columns. Views name the
columns that an operation reads. `results` are the rows that workers return, and `updates` what these change in a table
(`change`). `conditions` and `matching` find rows.
"""
