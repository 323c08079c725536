"""Facts of a log that are more than counts of its headers: checksums of all bytes, digests, timestamps, hours."""
