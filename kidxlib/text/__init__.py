"""What people write and read: points in time, files in TOML, counts in words."""
