"""Kafka's formats and names. `layouts` has each byte layout; `bytes_kernel` has compiled functions on bytes: numbers,
varints, sums as in Java, skipping, copying, prefetching. `checksums` are computed in Python and `checksum_kernel` in
loops; `codecs` decompresses, and in loops `decompress_kernel`. `segment_files` has the names of files, and says why
what is in a log dir is skipped; `topic_partition` has the names of partitions' directories, also of moved and renamed
ones. `checkpoint_files` has the contents of checkpoint files, written and parsed, and leader epochs;
`producer_snapshot` reads a `.snapshot`. `kafka_release` says what differs between releases. This package opens no
files.
"""
