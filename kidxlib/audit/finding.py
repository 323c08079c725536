"""A finding: what an audit says of one file. It has a verdict, a reason and a consequence."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

#: Reason for a broken offset index of the last segment whose last entry is not of its log's last batches.
PROMISES_OTHER_END: Final = "wrong-log-end-offset"


class Verdict(enum.StrEnum):
    """How good a file is; the mildest verdict first."""

    IDENTICAL = "identical"  # an index or auxiliary file: to what recovery writes
    WHOLE = "whole"  # a log: to its last byte
    SAFE = "safe"  # different, and every lookup is right
    TORN = "torn"  # a log that ends with an append that was not finished
    BROKEN = "broken"

    @property
    def severity(self) -> int:
        """The rank of a verdict: the worse of two has the larger number."""
        return _SEVERITY[self]

    @property
    def is_problem_free(self) -> bool:
        """Whether nothing is to be said of the file: it is `identical` or `whole`."""
        return self.severity == 0


_SEVERITY: Final = {Verdict.IDENTICAL: 0, Verdict.WHOLE: 0, Verdict.SAFE: 1, Verdict.TORN: 2, Verdict.BROKEN: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a log at the broker's next start.

    Attributes:
        action: what a broker does with the segment at its next start, as `StartupAction` of
            `kidxlib.audit.startup.simulation`; None if it does not reach it.
        kept_bytes: the bytes of the log that are left then.
        lost_bytes, lost_batches, lost_records: what that drops; where it drops nothing, what recovery would. None where
            it is not known for certain.
    """

    action: str | None = None
    kept_bytes: int | None = None
    lost_bytes: int | None = None
    lost_batches: int | None = None
    lost_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an audit says of one file of a segment: an index or auxiliary file, or the log itself.

    Attributes:
        file: its suffix.
        verdict: how good it is.
        reason: a short word, the same for all files of this kind; None of an identical or whole one.
        position: the first byte of it that is wrong, or different; None where it is missing or nothing is.
        detail: what was found there, and what recovery would have written.
        consequence: what that does, or why it does nothing; None of an identical one.
        fate: of a log, once its partition was looked at as a whole.
    """

    file: str
    verdict: Verdict
    reason: str | None = None
    position: int | None = None
    detail: str | None = None
    consequence: str | None = None
    fate: Fate | None = None


#: In the detail of a finding that stands for several.
ALSO: Final = "; also "


def worse(finding: Finding, other: Finding) -> Finding:
    """The worse of two findings on a log, or the first if they are equal. Its detail also tells the other finding."""
    if other.verdict.severity > finding.verdict.severity:
        finding, other = other, finding
    if other.reason is None or other.reason == finding.reason:
        return finding
    where = "" if other.position is None else f" at byte {other.position}"
    return replace(finding, detail=f"{finding.detail}{ALSO}{other.reason}{where}: {other.detail}")


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """A finding, and the segment whose file it is about.

    Attributes:
        base_offset: the segment's; for a file of the partition as a whole its first base offset.
        finding: what is said of the file.
        beside_logs: it is a broker's own file, beside the logs, where index files are looked for elsewhere.
    """

    base_offset: int
    finding: Finding
    beside_logs: bool = False


#: The reason of a log to which a broker writes.
IN_USE: Final = "in-use"

#: Verdicts that are reported.
WORST_FIRST: Final = (Verdict.BROKEN, Verdict.TORN, Verdict.SAFE)

#: Those that are nothing to pass over.
DAMAGE: Final = (Verdict.BROKEN, Verdict.TORN)
