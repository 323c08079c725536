"""Two places compared: a log dir and its copy, two replicas, or two sources of a catalog. `catalog_replicas` has the
rules for replicas of several sources: it compares digests of segments, and logs where these can be read here.
"""
