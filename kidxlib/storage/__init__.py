"""Reads and writes files: logs on a disk or in S3, directories, and a log dir's own small files. `location` says where
files are, and lists and reads directories; `log_dir` reads checkpoints, `meta.properties` and the like, and
tells a partition's directory by its files; `lock` is the log dir's. A log is opened by `opened_log`, wherever it is,
which leaves the page cache as it was. Its bytes are `log_bytes`, which also read and write past the page cache.
`logs_aside` finds logs under other names and in other places: those that no broker loads, and the `.swap` files that a
starting broker puts in place. Only `publisher` writes index files and checkpoints, `file_copy` copies logs, and only
`remover` renames or removes files of a log dir. `packed` index files are rows of a catalog (`packed_rows`); `scratch`
is the directory of rows that wait to be recorded.
"""
