"""The parts that runs of commands share: settings, sources, time, catalog, and the report of how the run ended.
`options` has the options that several commands have, and their checks; `settings` reads the file; `context` is what a
run gets from both.
"""
