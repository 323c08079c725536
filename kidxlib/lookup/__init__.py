"""Looks up offsets and times, one or millions, in the partitions of a log dir or of the catalog. Files that nobody
vouches for are checked first. Answers are Arrow tables.
"""
