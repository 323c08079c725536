"""The compiled scan of a segment's log: its loops, what they carry from chunk to chunk, and what they note down."""
