"""Partitions that are finished once their segments are recorded: from rows of the catalog to rows of the catalog."""
