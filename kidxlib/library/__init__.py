"""The calls that `import kidxlib` gives besides classes: each does in one process what the commands do. `read` has
those that read records, `partition` those on an opened partition.
"""
