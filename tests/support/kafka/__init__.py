"""Kafka itself, for comparison: brokers, and Kafka's classes in a JVM that stays up."""
