"""`recover`: a crashed broker's log dirs are made ready for its next start, which then need not read them. What that
start would do is planned first.
"""
