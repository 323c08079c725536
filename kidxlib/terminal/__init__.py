"""What a person sees and types: messages, progress, tables, exit codes, and options that commands and jobs share."""
