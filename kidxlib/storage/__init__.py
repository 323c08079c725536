"""Reads and writes files: logs on a disk or in S3, directories, and the locks and checkpoints of a log dir. A log
is opened by `opened_log` wherever it is, by `opened_file` on this machine, and many small ones by `opened_together`;
`uncached` reads past the page cache. `location` and `directory` are places of files, `mounts` sees through bind
mounts, `small_files` reads checkpoints and properties, `logs_aside` finds logs that no broker loads. Only `publisher`
writes index files and checkpoints, `file_copy` copies logs, and only `remover` renames or removes files of a log dir.
"""
