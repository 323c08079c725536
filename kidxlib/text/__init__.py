"""Texts that people write and read: times, TOML files, numbers in words."""
