"""A comparison of two places or sources: its findings, which kinds of them fail a gate, and how its work is run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress, begin_phase

if TYPE_CHECKING:  # the command's --help waits for none of these
    from kidxlib.engine.protocol import Engine
    from kidxlib.engine.work import StagedRows, Work


class As(StrEnum):
    """What B is of A."""

    COPY = "copy"
    REPLICA = "replica"


class FindingKind(StrEnum):
    """The kinds of findings in the order in which they are shown, the worst first. A is the original, B is compared
    with it.

    Attributes:
        MISSING: B lacks a partition.
        LACKS: B lacks offsets of a partition, before its end or altogether.
        DIFFERS: B has other bytes, or other batches at the same offsets.
        NO_COPY: a directory or file of B leads back to A, so that damage hits both.
        NOT_COMPARABLE: nobody knows, as one side is damaged or cannot be read.
        OTHER_ORIGIN: B is of another cluster, broker, log dir or topic.
        NEITHER: both sides lack something that should be there.
        BEHIND: B ends earlier.
        OTHER_SEGMENTS: B has the batches of A in segments that are cut elsewhere.
        FILE_MISSING: B lacks a file beside the logs.
        FILE_DIFFERS: a file beside the logs has other bytes in B.
        FILE_BEHIND: a file of B ends earlier or says less, as one of an earlier moment does.
        CLEANED: each broker has compacted its own log there.
        NOT_COMPARED: a copy does not have to have it.
        REWRITTEN: a file that a broker writes anew, as an active segment's index.
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


#: Findings that are shown and are no fault.
HARMLESS: Final = (FindingKind.CLEANED, FindingKind.NOT_COMPARED, FindingKind.REWRITTEN, FindingKind.ONLY_IN_B)
#: Faults of files beside the logs.
FILE_KINDS: Final = (FindingKind.FILE_MISSING, FindingKind.FILE_DIFFERS)
#: The verdict on a partition without a fault.
SAME: Final = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFinding:
    """
    Attributes:
        directory: the partition's; None for a finding on the log dir.
        file: None for a finding on the whole partition.
        first_offset, last_offset: the offsets that the finding is about, if any.
        records: in these offsets; None where nobody can tell.
        bytes: of logs or of the file that the finding is about, if any.
        segments: of A that begin at the end of B or beyond it, and have bytes, where B ends earlier; None for other
            findings, and where nobody has counted them.
        detail: the rest of the line.
    """

    kind: FindingKind
    directory: str | None = None
    file: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    bytes: int | None = None
    segments: int | None = None
    detail: str

    @property
    def partition(self) -> TopicPartition | None:
        return None if self.directory is None else parse_partition_directory(self.directory)

    def line(self) -> str:
        where = " ".join(part for part in (self.directory, self.file) if part is not None)
        return f"{self.kind}: {where}: {self.detail}" if where else f"{self.kind}: {self.detail}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionComparison:
    """How a partition that at least one side has compares.

    Attributes:
        verdict: the worst kind of its findings; `SAME` where both sides are the same to their ends.
        a_end_offset, b_end_offset: where the logs end; None without a log, or where nobody could tell.
        same_to_offset: both sides are the same below it; None where they share nothing, or nothing was compared.
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
    """
    Attributes:
        logs, log_bytes: the number of pairs of logs that were compared, and their bytes on both sides.
        files: the number of pairs of other files.
    """

    findings: Sequence[ComparisonFinding]
    partitions: Sequence[PartitionComparison]
    logs: int
    log_bytes: int
    files: int

    def harmful(self, *, harmless: Collection[FindingKind], max_behind: int | None) -> list[ComparisonFinding]:
        """The findings that are neither of these kinds nor `HARMLESS`. Where B ends earlier, it may lack at most
        `max_behind` whole segments; None for any number.
        """
        return [
            finding
            for finding in self.findings
            if finding.kind not in (*HARMLESS, *harmless)
            or (max_behind is not None and finding.kind is FindingKind.BEHIND and (finding.segments or 0) > max_behind)
        ]

    def by_kind(self) -> Mapping[FindingKind, Sequence[ComparisonFinding]]:
        """The findings in the order of `FindingKind`, without kinds that have none."""
        findings = {kind: [finding for finding in self.findings if finding.kind is kind] for kind in FindingKind}
        return {kind: of_kind for kind, of_kind in findings.items() if of_kind}


def comparison_verdict(findings: Iterable[ComparisonFinding]) -> str:
    """The worst kind of a partition's findings. Harmless ones leave the partition the same, but for a cleaner's."""
    kinds = {
        finding.kind for finding in findings if finding.kind not in HARMLESS or finding.kind is FindingKind.CLEANED
    }
    return next((kind.value for kind in FindingKind if kind in kinds), SAME)


def run_comparison(
    work: Work[Any],
    engine: Engine,
    phase: str,
    *,
    so_far: Callable[[Progress], str],
    segments: int,
    log_bytes: int = 0,
) -> StagedRows:
    """Run the work of a comparison, and give its staged rows. An interrupted run reports nothing, and says what was
    done `so_far`.
    """
    before = engine.done()  # not 0 if the engine has compared files of a copy

    def done() -> Progress:
        return engine.done() - before

    if not work.is_small:
        engine.start()
    begin_phase(phase, done=done, segments=segments, log_bytes=log_bytes, after="counting")
    with (
        interrupts.telling(lambda: f"{so_far(done())} compared, and none reported; run the same command again"),
        engine.abandoning(),
    ):
        staged = engine.run(work)
        interrupts.raise_if_requested()
    begin_phase("counting")
    return staged
