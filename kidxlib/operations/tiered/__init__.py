"""Tiered storage: audits, repairs of its objects, and what other settings would free."""
