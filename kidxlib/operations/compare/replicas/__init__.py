"""Whether the replicas of a partition hold the same, where several sources of a catalog have it: by the digests of its
segments, and by their logs where these can be read here. `compare_replicas` has the rules.
"""
