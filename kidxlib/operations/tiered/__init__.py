"""Audits of tiered storage, and repairs."""
