"""The compiled scan of a segment's log: its loops, their state between chunks, and their output."""
