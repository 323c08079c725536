"""Damaged or unusual index and auxiliary files, and the verdict that an audit must give on each."""
