"""Damaged index and auxiliary files, and what an audit says of them."""
