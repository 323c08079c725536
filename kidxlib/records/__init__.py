"""Batches and records in the bytes of a log, of all three message formats. Compiled loops search for a batch, or make
tables of all batches. `arrow_columns` and `arrow_records` make Arrow tables of batches and of records.
"""
