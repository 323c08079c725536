"""Kafka's retention. `policy` has what is configured for a topic (`TopicConfig`, `TopicPolicy`), and the words for
decisions and reasons; `policy_file` reads policies from TOML, and checks their values, and `described_configs` reads
the output of Kafka's own tools, without pydantic. `decide` says which segments go, and why the others stay; `delete`
compares a plan with the files as they are now, and deletes what it names.
"""
