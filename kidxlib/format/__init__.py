"""Kafka's formats and names: `layouts`, varints, checksums, codecs. `segment_files` has the names of files, and says
what in a log dir is no partition; `topic_partition` the names of partitions' directories; `checkpoint_files` the
contents of checkpoint files, leader epochs among them. This package opens no files.
"""
