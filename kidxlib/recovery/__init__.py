"""What a broker's recovery makes of a log. One compiled loop reads a segment's batch headers and gives its index files,
facts, producer events and leader epochs; the fold of a partition gives the state of producers and aborted
transactions. It needs neither `records` nor `index`.
"""
