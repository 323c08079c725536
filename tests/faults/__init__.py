"""Kills, full disks, power cuts, hostile files and wrong inputs, injected for real."""
