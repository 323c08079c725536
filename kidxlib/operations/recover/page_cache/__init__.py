"""Whether all that a broker has written can be read although nothing of it may be on the disk, and what need not be
read again then.
"""
