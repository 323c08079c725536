"""Looks up offsets and times, one or millions, in the partitions of a log dir, of the catalog or of a bucket
(`searched_partitions`). `seeker` has a partition's log answer. `answers` are Arrow tables, with notes: each remark on a
log's start, end, gaps and times is made there. `checkpoint_evidence` says by a log dir's checkpoints how far a log went
(its high watermark), and where it began. Files that nobody vouches for are checked first (`checked_segment`).
"""
