"""Reads and writes files: logs on a disk or in S3, directories, and a log dir's own small files. `location` says where
files are, and lists and reads directories; `log_dir` reads checkpoints, `meta.properties` and the like, `lock` is the
log dir's. A log is opened by `opened_log`, wherever it is, and its bytes are `log_bytes`, which also read and write
past the page cache; `logs_aside` finds logs that no broker loads. Only `publisher` writes index files and checkpoints,
`file_copy` copies logs, and only `remover` renames or removes files of a log dir. `packed` index files are rows of a
catalog (`packed_rows`); `scratch` is the directory of rows that wait to be recorded.
"""
