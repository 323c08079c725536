"""Kafka's index files: `offset` is `.index`, `time` is `.timeindex`, `transaction` is `.txnindex`, each with its
entries. `abstract_index` has what the first two have in common: opening, checks, lookups and their traces.
`search_kernel` has the compiled loops: Kafka's warm and cold search for one or millions of targets, and the columns of
entries.
"""
