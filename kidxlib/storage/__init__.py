"""Where bytes are: logs on a disk or in S3, read whole, in ranges or through a map; directories and their files; the
locks and checkpoints of a log dir. `publisher` is the only place that writes an index file or a checkpoint, and
`remover` the only one that renames or removes files of a log dir.
"""
