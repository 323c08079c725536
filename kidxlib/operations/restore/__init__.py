"""`restore`: a cluster back from its brokers' disks, into new directories: its metadata first, then its logs."""
