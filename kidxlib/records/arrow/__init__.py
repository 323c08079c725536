"""Batches and records as Arrow tables; the names of their columns are those of `kidx dump --json`."""
