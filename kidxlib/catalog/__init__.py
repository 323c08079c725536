"""The tables of the catalog. A row of each is a frozen dataclass, whose fields are the columns with their meanings; a
view of it has the columns that one operation reads (`SegmentToCompact`). Tables and views are in `segments`,
`partitions` (also what producers did, and keys of partitions), `findings`, `retention_plans` and `index_bytes` (packed
files). `tables` lists all, and has the catalog's version, Delta's properties and the size of files. `rows` makes a
class a row of a `Table` (`row`, `column`), has the key of each row (`PartitionOfSource`), and mixes kinds of rows;
`results` are those that workers return. `updates` computes what a commit changes, a `TableChange` (`change`).
`conditions` choose rows to read, or those that a change concerns (`scope_of`); `matching` compares rows, in Arrow's
columns.
"""
