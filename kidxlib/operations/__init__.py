"""What a command does from its listing to its report, written once for all engines and for all that keep tables. A
`backend` is an engine and a `catalog`. Small operations are one file: `compaction` makes index files smaller,
`maintenance` the catalog's tables, `packed` records and unpacks index files that are in the catalog, `doctor` says
which packages are there and what the machine has (memory, control group), and compiles all loops. `producer_events`
turns what producers did, and leader epochs, from arrays into rows, and back.
"""
