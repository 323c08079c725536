"""Reads and writes files: logs on a disk or in S3, directories, and the locks and checkpoints of a log dir. Only
`publisher` writes index files and checkpoints, and only `remover` renames or removes files of a log dir.
"""
