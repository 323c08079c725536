"""Models to compare the library with: plain and slow, and with none of its code."""
