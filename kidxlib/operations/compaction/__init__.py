"""Compaction: index files trimmed, made sparser or denser, removed where nothing needs them; and the tables' upkeep."""
