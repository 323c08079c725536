"""The records of a log dir as a consumer gets them, in bulk: a plan of what is read of which segment, and the reading
of it. The plan consists of small values that can be sent to other processes; to read a segment, its part of the plan is
enough.
"""
