"""`compact_index`: request, index files on executors, the tables' own upkeep, report."""
