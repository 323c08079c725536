"""What a command does from its listing to its report, written once for all engines and for all that keep tables. Small
operations are one file: `compaction` makes index files smaller, `doctor` says which packages are there and what the
machine has.
"""
