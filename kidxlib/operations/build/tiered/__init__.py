"""Repairs of tiered storage: what `--tiered` makes of a build."""
