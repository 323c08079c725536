"""The terminal's side of a command. `run_command` runs one: it refuses wrong words on the command line, prints the one
line of an error, and ends with an exit code. `exit_codes` lists these, and ends the process. `options` has options that
several commands share, the types of their values (bytes, milliseconds), and checks. `console` prints all that a command
says: notes, warnings, lines and JSON, of many alike only the first, and details with `--verbose`; while it works, the
phase, how far and how fast. An `outcome` collects what a run says at its end, and prints tables. `run_summary` has
lines that several runs show, on builds, lost parts and gaps; `audit` shows what an audit found, on screen and as JSON.
`interrupts` handles signals.
"""
