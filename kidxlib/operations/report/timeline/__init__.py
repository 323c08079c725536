"""Segments of partitions along offsets and time: each by itself, or several in one piece where they are too many."""
