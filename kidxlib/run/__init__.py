"""The parts that runs of commands share. `context` is a run's time, its catalog, and whether that is there, `settings`
reads the settings file, and `sources` has the log dirs of a run, named or recorded. `known_topics` reads topics'
settings from the cluster's metadata, and refuses what may be another broker's. From a topic's settings `index_options`
makes the options of its indexes, and `retention_configs` its configuration for retention. `metrics` writes how a run
ended for Prometheus.
"""
