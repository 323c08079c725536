"""Kafka's formats and names: `layouts` has each byte layout, and `bytes_kernel` reads numbers in compiled loops.
`checksums` are computed in Python and `checksum_kernel` in loops; `codecs` decompresses, and in loops
`decompress_kernel`. `segment_files` has the names of files, and says what in a log dir is no partition;
`topic_partition` the names of partitions' directories; `checkpoint_files` the contents of checkpoint files, leader
epochs among them. `kafka_release` says what differs between releases. This package opens no files.
"""
