"""The rows that tasks of a comparison give: logs and other files of both sides, and ranges of offsets of replicas.

Of the two sides, `one` is the original, `other` what is compared with it.
"""

from __future__ import annotations

from typing import Final

from kidxlib.catalog.columns import column
from kidxlib.catalog.rows import Row, kinds_of, row


@row
class LogPairRow(Row):
    """A segment's log on both sides."""

    directory: str = column("the partition's")
    base_offset: int = column("of the segment")
    one_bytes: int | None = column("size of the log; null: there is none")
    other_bytes: int | None = column("the same of the other side")
    is_same_file: bool = column("both names are of one file")
    same_bytes: int | None = column("up to where both have the same whole batches")
    same_end_offset: int | None = column("the offset after these; null: none")
    same_records: int | None = column("records in these; null where headers do not tell")
    differing_bytes: int | None = column("of the bytes that both have")
    first_difference: int | None = column("the first of these")
    last_difference: int | None = column("the last of these")
    batch_end_offset: int | None = column("the offset after the first batch that the other side has not as it is")
    one_end_offset: int | None = column("the offset after the last whole batch; null: none")
    other_end_offset: int | None = column("the same of the other side")
    one_valid_bytes: int | None = column("the byte after the last whole batch")
    other_valid_bytes: int | None = column("the same of the other side")
    one_beyond_records: int | None = column("records behind `same_bytes`; null where headers do not tell")
    other_beyond_records: int | None = column("the same of the other side")
    one_zeros: bool | None = column("all that follows its whole batches is zeros")
    other_zeros: bool | None = column("the same of the other side")
    one_damaged: int | None = column(
        "behind `same_bytes`, the first batch with a wrong checksum or an impossible header"
    )
    other_damaged: int | None = column("the same of the other side")
    one_repeated: int | None = column("behind `same_bytes`, the first batch with offsets of an earlier one")
    other_repeated: int | None = column("the same of the other side")
    one_zeros_there: int | None = column("how many zeros stand at the first difference")
    other_zeros_there: int | None = column("the same of the other side")
    one_grew: int | None = column("bytes that have come since it was listed, and were not compared")
    other_grew: int | None = column("the same of the other side")
    problem: str | None = column("why it was not compared, or not to its end")


@row
class FilePairRow(Row):
    """Another file of a partition's directory."""

    directory: str = column("the partition's")
    name: str = column("of the file")
    verdict: str = column("what is said of it")
    detail: str = column("why")
    same_to_offset: int | None = column(
        "of leader epochs and aborted transactions: what both say of offsets below it is the same; null: not looked for"
    )


#: What is compared of a copy.
COMPARED_COPY: Final = kinds_of(log=LogPairRow.columns(), file=FilePairRow.columns())


@row
class ReplicaRangeRow(Row):
    """Batches of a range of offsets of two replicas."""

    directory: str = column("the partition's")
    first_offset: int = column("of the range")
    same_batches: int = column("batches that both have above `cleaned_to`")
    cleaned_to: int = column("below it a cleaner has worked on one of them")
    has_inner_gaps: bool = column("offsets are missing within a log, as a cleaner leaves it")
    a_records: int | None = column("records in the range; null where headers do not tell")
    b_records: int | None = column("the same of the other side")
    a_end_offset: int | None = column("the offset after its last batch in the range; null: none")
    b_end_offset: int | None = column("the same of the other side")


@row
class BatchRangeRow(Row):
    """Offsets of which two replicas have not the same batches, or of which one cannot be read."""

    directory: str = column("the partition's")
    kind: str = column("only-a, only-b, differs, neither, damaged-a, damaged-b")
    first_offset: int = column("of the range")
    last_offset: int = column("of the range")
    records: int | None = column("records in it; null where nobody can tell")
    detail: str | None = column("why it cannot be read")


#: What is compared of replicas.
COMPARED_REPLICAS: Final = kinds_of(range=ReplicaRangeRow.columns(), batches=BatchRangeRow.columns())
