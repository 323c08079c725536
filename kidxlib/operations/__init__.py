"""What a command does from its listing to its report, written once for all engines and for all that keep tables. A
`backend` is an engine and a catalog; `local_backend` opens the one of this machine. `catalog` reads and changes a
catalog's tables for operations, and forgets a source. Small operations are one file: `compaction` makes index files
smaller, `maintenance` measures and tidies the catalog's tables, `packed` records and unpacks index files that are in
the catalog, `doctor` says which packages are there and what the machine has (processor, memory, control group), and
compiles all loops. `producer_events` turns what producers did, and leader epochs, from arrays into rows, and back.
"""
