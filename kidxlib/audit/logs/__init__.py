"""Verdicts on logs: on each log by itself, and on the logs of a partition together."""
