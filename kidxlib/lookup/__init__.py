"""Looks up offsets and times, one or millions (`seeker`), in the partitions of a log dir, of the catalog or of a
bucket (`searched_partitions`). Files that nobody vouches for are checked first (`checked_segment`). `answers` are
Arrow tables, with remarks in their notes. `checkpoint_evidence` says by a log dir's checkpoints how far a log went.
"""
