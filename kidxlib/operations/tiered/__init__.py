"""Audits of tiered storage: what `--tiered` makes of an audit."""
