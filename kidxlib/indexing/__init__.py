"""From directories to index files: list sources, plan their partitions, compare them with the catalog, scan, publish,
finish partitions, count.
"""
