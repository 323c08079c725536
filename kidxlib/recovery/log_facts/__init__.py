"""Facts of a log beyond counts of its headers: checksums of all bytes, digests, timestamps, hours."""
