"""Verdicts on index and auxiliary files: each file is read (`index_file`) and checked against what recovery makes of
the logs. `snapshot` also knows the logs that the cleaner has cleaned since.
"""
