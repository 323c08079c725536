"""The records of a log dir as a consumer gets them, in bulk: a plan of what is read of which segment, and the reading
of it. In the plan, `bounds` says where reading begins and ends in a log (`ListedLog`), `ends` in a partition, `places`
which byte an offset has. The plan consists of small values that can be sent to other processes; to read a segment, its
part of the plan (`segment_read`) is enough: `walk` walks over its batches, `rows` makes records of them.
"""
