"""Reads and writes files. `location` says where files and directories are, lists and opens them, and flushes file
systems. `small_files` reads small files, whole or in part, and index files without the room at their end. `log_dir`
reads a log dir's checkpoints and `meta.properties`, and recognizes it and its partitions' directories; `lock` is its
lock. `opened_log` opens and maps logs, on a disk or in S3; `log_bytes` has their bytes, and reads and writes past the
page cache. `logs_aside` finds logs that no broker loads, and the `.swap` that it puts in place. Only `publisher` writes
index files and checkpoints, `file_copy` copies logs, and only `remover` renames or removes files of a log dir. `packed`
index files are rows of a catalog (`packed_rows`); `scratch` is the directory of rows that wait to be recorded.
"""
