"""Verdicts on index and auxiliary files: each file is checked against what recovery makes of the logs."""
