"""The compiled scan of logs: its loops, their state between chunks, their output, and facts of headers."""
