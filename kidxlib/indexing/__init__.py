"""From directories to index files: `discover` and `listing` list sources, `listed` is the table of what is there.
`plan` has their segments, `changes` compares them with the catalog, `segments` scans and publishes, and
`finish_partition` does what depends on the order of segments.
"""
