"""Kafka's formats and names: layouts, varints, checksums, codecs, names of files and directories, and the contents of
checkpoint files and snapshots. This package opens no files.
"""
