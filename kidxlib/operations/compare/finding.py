"""What a comparison finds, and what each kind of it means for a gate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory


class As(StrEnum):
    """What B is of A."""

    COPY = "copy"
    REPLICA = "replica"


class Kind(StrEnum):
    """What is found, in the order in which it is shown: what is said of logs before what is said of other files. A is
    the original, B what is compared with it.

    Attributes:
        MISSING: B lacks a partition.
        LACKS: B lacks offsets of a partition, before its end or altogether.
        DIFFERS: B has other bytes, or other batches at the same offsets.
        NO_COPY: what stands in B leads back to A, so that damage hits both.
        NOT_COMPARABLE: nobody knows, as one side is damaged or cannot be read.
        OTHER_ORIGIN: B is of another cluster, broker, log dir or topic.
        NEITHER: both sides lack something that should be there.
        BEHIND: B ends earlier.
        OTHER_SEGMENTS: B has the batches of A in segments that are cut elsewhere.
        FILE_MISSING: B lacks a file beside the logs.
        FILE_DIFFERS: B has another one.
        FILE_BEHIND: a file of B ends earlier or says less, as one of an earlier moment does.
        CLEANED: each broker has compacted its own log there.
        NOT_COMPARED: nothing that a copy has to have.
        REWRITTEN: files that a broker writes anew, as the bytes of an active segment's index.
        ONLY_IN_B: B has more.
    """

    MISSING = "missing"
    LACKS = "lacks"
    DIFFERS = "differs"
    NO_COPY = "no-copy"
    NOT_COMPARABLE = "not-comparable"
    OTHER_ORIGIN = "other-origin"
    NEITHER = "neither"
    BEHIND = "behind"
    OTHER_SEGMENTS = "other-segments"
    FILE_MISSING = "file-missing"
    FILE_DIFFERS = "file-differs"
    FILE_BEHIND = "file-behind"
    CLEANED = "cleaned"
    NOT_COMPARED = "not-compared"
    REWRITTEN = "rewritten"
    ONLY_IN_B = "only-in-b"


#: What is listed and is no fault.
HARMLESS: Final = (Kind.CLEANED, Kind.NOT_COMPARED, Kind.REWRITTEN, Kind.ONLY_IN_B)
#: What is said of files beside the logs.
OF_FILES: Final = (Kind.FILE_MISSING, Kind.FILE_DIFFERS)
#: Of a partition where nothing else was found.
SAME: Final = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found.

    Attributes:
        directory: of the partition; None where it is the log dir's.
        file: of which it is; None where it is of a partition as a whole.
        first_offset, last_offset: which it is about; None where it is about none.
        records: in these; None where nobody can tell.
        bytes: of logs or of the file; None where it is about none.
        detail: the rest of the line.
    """

    kind: Kind
    directory: str | None = None
    file: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    bytes: int | None = None
    detail: str

    @property
    def partition(self) -> TopicPartition | None:
        """The partition whose directory it is; None where it is none's."""
        return None if self.directory is None else parse_partition_directory(self.directory)

    def line(self) -> str:
        """The line on screen."""
        where = " ".join(part for part in (self.directory, self.file) if part is not None)
        return f"{self.kind}: {where}: {self.detail}" if where else f"{self.kind}: {self.detail}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What is said of a partition that a side has.

    Attributes:
        verdict: the worst kind of what was found; `SAME` where both sides are the same to their ends.
        a_end_offset, b_end_offset: where the logs end; None where there is none, or nobody could tell.
        same_to_offset: up to there all is the same; None where nothing is, or nothing was compared.
    """

    directory: str
    verdict: str
    a_end_offset: int | None = None
    b_end_offset: int | None = None
    same_to_offset: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        logs, log_bytes: pairs of logs that were compared, and their bytes on both sides.
        files: pairs of other files.
    """

    findings: Sequence[Finding]
    partitions: Sequence[PartitionResult]
    logs: int
    log_bytes: int
    files: int

    def fails(self, *, harmless: Collection[Kind]) -> bool:
        """Whether something was found that is not among these, nor harmless in any case."""
        return any(each.kind not in (*HARMLESS, *harmless) for each in self.findings)

    def by_kind(self) -> Mapping[Kind, Sequence[Finding]]:
        """The findings, those of one kind together and in the order of partitions."""
        return {kind: found for kind in Kind if (found := [each for each in self.findings if each.kind is kind])}


def verdict_of(findings: Iterable[Finding]) -> str:
    """The worst kind of what was found of a partition; what is no fault leaves it the same."""
    order = list(Kind)
    kinds = [each.kind for each in findings if each.kind not in HARMLESS or each.kind is Kind.CLEANED]
    return min(kinds, key=order.index).value if kinds else SAME
