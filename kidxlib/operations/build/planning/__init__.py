"""What a build is to do: its sources, listed and compared with the catalog, by the command itself or by workers."""
