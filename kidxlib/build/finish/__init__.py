"""Partitions that are finished once their segments are read: transaction indexes, snapshots, leader epochs."""
