"""Kafka's retention. `policy` has a topic's configuration (`TopicConfig`), which `policy_file` reads from TOML,
and `described_configs` from the output of Kafka's own tools, without pydantic; `decide` says which segments go, and why
the others stay; `apply` deletes what a plan names.
"""
