"""Seeks: questions from a file or a command line, answered key range by key range, counted and written."""
