"""Logs for tests: golden ones of Kafka, made up, and random."""
