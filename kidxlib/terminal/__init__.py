"""The terminal's side of a command: its `options`, what it shows while it works (`console`), its `outcome` with lines
and tables, the lines that sum up a run (`run_summary`) or an `audit`, signals (`interrupts`), and how it ends
(`command`). `exit_codes` lists how commands end; which code a run has, its command or operation says.
"""
