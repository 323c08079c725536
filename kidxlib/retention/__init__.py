"""Kafka's retention. `policy` has a topic's configuration (`TopicConfig`), which `policy_file` and
`described_configs` read; `decide` says which segments go, and why the others stay; `plan` is what `apply` deletes by.
"""
