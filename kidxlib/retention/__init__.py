"""Kafka's retention: which segments it deletes, the configuration that decides (policy files, or the output of Kafka's
tools), and applying a plan.
"""
