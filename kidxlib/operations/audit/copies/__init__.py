"""Copies of segments in an object store, compared with the catalog's checksums: what `--copy` makes of an audit."""
