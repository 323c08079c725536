"""The tables of the catalog: each is a frozen dataclass whose fields are the columns with their meanings. `rows` has
what makes a class a row of a `Table` (`row`, `column`), and one schema for rows of several kinds. Schemas of Arrow,
Spark and Delta and `docs/catalog.md` follow from it. `tables` has all of them, with the version of the columns. Views
name the columns that an operation reads. `results` are the rows that workers return. `updates` computes from these, and
from a table's rows, what a commit changes (`Change`, in `change`). `conditions` choose rows as they are read;
`matching` finds rows of one table in another, in Arrow's columns. `partitions` has the tables of partitions and of
producers, and names the columns of a partition's key.
"""
