"""What a build records in a catalog of the segments and partitions that it has read."""
