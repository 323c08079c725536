"""Whether the replicas of a partition hold the same, where several sources of a catalog have it: by the digests of its
segments, and by their logs where these can be read here.

Sources hold replicas of one partition if its topic, number and topic id are the same. Two replicas are compared from
the later of their log starts up to the earlier of their high watermarks; what a broker has beyond that is not committed
yet, and may differ. Segments may be cut differently. If digests of a range of offsets are equal, both replicas hold the
same batches there; if not, they differ in that range, and the logs tell the first offset, if they lie on this machine
as the catalog knows them. A range that reaches beyond the bounds tells nothing unless its digests are equal. So the
last offsets of an active segment are often undecided: its ranges end where the log ends, not at the high watermark.

Each replica of a compacted topic is cleaned by its own broker, and holds other batches than the others. Such topics are
compared by leader epochs and by how many records there are, and are never called the same.

Where one replica has no batch in offsets before its end that another has, it lacks them, whatever the high watermark
is. What is damaged or not known is not comparable, and what was not compared to its end is the same up to an offset.

A source that was listed earlier than another is behind by what was written since; that is no fault by itself.
"""
