"""The report: one HTML page of what a catalog knows of a fleet's segments, and the same numbers as JSON. `questions`
has the SQL, `sections` what comes of it, `attention` what stands first; `fleet_map`, `timeline`, `outlook` (what is
deleted next, how long disks have room) and `what_if` (other limits of retention) are sections of their own.
"""
