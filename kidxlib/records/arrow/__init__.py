"""Batches and records as Arrow tables, with the column names of `kidx dump --json`."""
