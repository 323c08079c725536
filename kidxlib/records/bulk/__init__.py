"""Batches and records of a log in bulk: headers as rows of a table, and records by where their parts lie in memory. The
loops are compiled; what they do not take is read by `kidxlib.records.reader`, which also says what is malformed.
"""
