"""Logs to test with: golden, made up, and at random."""
