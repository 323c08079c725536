"""A build: listed, compared with the catalog, read, finished, recorded and reported."""
