"""Kafka itself, to compare with: a broker, and its own classes in a JVM that stays up."""
