"""The parts that runs of commands share: settings, sources, time, catalog, and the report of how the run ended.
`options` has the options that several commands have, and their checks; `settings` reads the file; `context` is what a
run gets from both. `sources` chooses the log dirs of a run, `known_topics` reads topics' settings from the cluster's
metadata, and `heartbeat` keeps the directory of rows that are not recorded yet.
"""
