"""Reads and writes files: logs on a disk or in S3, directories, and a log dir's own small files. `location` says where
files are, lists and reads directories, and flushes file systems; `log_dir` reads checkpoints, `meta.properties` and the
like, and tells a partition's directory by its files; `small_files` are read whole, and index files without the room
that a broker keeps at their end; `lock` is the log dir's. `opened_log` opens a log, on a disk or in S3, and leaves the
page cache as it was. `log_bytes` has the bytes of an opened log, window by window, also of one that is read in ranges,
and reads and writes past the page cache. `logs_aside` finds logs under other names and in other places: those that no
broker loads, and the `.swap` files that a starting broker puts in place. Only `publisher` writes index files and
checkpoints, `file_copy` copies logs, and only `remover` renames or removes files of a log dir. `packed` index files are
rows of a catalog (`packed_rows`); `scratch` is the directory of rows that wait to be recorded.
"""
