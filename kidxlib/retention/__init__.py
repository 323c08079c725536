"""Kafka's retention. `policy` has a topic's configuration (`TopicConfig`), which `policy_file` reads, also of the
output of Kafka's own tools; `decide` says which segments go, and why the others stay; `apply` deletes what a plan
names.
"""
