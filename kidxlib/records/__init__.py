"""Batches and records in the bytes of a log, of all three message formats. Compiled loops look for a batch, or take a
column of all of them.
"""
