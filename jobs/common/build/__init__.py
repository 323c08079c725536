"""`build_index`: request, comparison with the catalog, waves of scans on executors, partitions that are finished,
report.
"""
