"""The parts that runs of commands share. `context` has a run's time and the place of its catalog: it refuses a place
where none is or can be made, and opens the tables of the one that an option names. `settings` reads the settings file.
`sources` has a run's log dirs, named by options or recorded by builds, and lists them to see which are reached.
`known_topics` reads the topics of these sources, with their settings, from the cluster's metadata, and compares a given
server.properties with it; `log_dirs_at_hand` says which log dirs of the sources' brokers, and which nodes' metadata
logs, are not given. From a topic's settings `index_options` makes the options of its indexes, `retention_configs` its
configuration for retention. `metrics` writes how a run ended for Prometheus.
"""
