"""What Kafka's bytes and names look like: layouts, varints, checksums, codecs, names of files and directories, and the
contents of checkpoint files and snapshots. Nothing here opens a file.
"""
