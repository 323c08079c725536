"""Index files are made sparser or denser, trimmed of zeros, or removed because nothing needs them. `policy` says which
segments get which interval (`policy_file` reads it), and `compact_partition` does it, partition by partition: it finds
changes and orphans, and applies them.
"""
