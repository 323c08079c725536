"""The upkeep of a catalog's tables: old rows expire, files are written anew in order, and old files are removed."""
