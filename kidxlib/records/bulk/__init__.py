"""Batches and records of a log in bulk: headers as rows of a table, and records by the addresses of their parts. The
loops are compiled. `kidxlib.records.reader` reads the batches that they refuse, and says what is malformed.
"""
