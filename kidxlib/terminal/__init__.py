"""The terminal's side of a command: messages, progress, tables, signals, exit codes, and options that commands
share.
"""
