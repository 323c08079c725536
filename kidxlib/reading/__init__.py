"""The records of a log dir as a consumer gets them, in bulk: a plan of what is read of which segment, and the reading
of it. The plan is made of small values that may be sent elsewhere; who reads needs nothing but one of its segments.
"""
