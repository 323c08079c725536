"""`build_index` on Spark: bins of segments and shares of partitions on executors, rows committed by Delta."""
