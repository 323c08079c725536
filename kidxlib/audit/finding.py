"""A finding of an audit on one file: a verdict, a reason and a consequence."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

#: The reason if the last segment's offset index is broken because its last entry is not near the end of the log.
PROMISES_OTHER_END: Final = "wrong-log-end-offset"

#: The reason of a finding that all indexes may have, those of buckets too.
FAILS_CHECK: Final = "fails-sanity-check"

#: The reason of a finding that buckets have, too.
OTHER_VERSION: Final = "other-version"


class Verdict(enum.StrEnum):
    """How good a file is; the mildest verdict first."""

    IDENTICAL = "identical"  # an index or auxiliary file that is what recovery writes
    WHOLE = "whole"  # a log that is right to its last byte
    SAFE = "safe"  # different, but every lookup is right
    TORN = "torn"  # a log that ends with an append that was not finished
    BROKEN = "broken"

    @property
    def severity(self) -> int:
        """A worse verdict has a larger number."""
        return _SEVERITY_BY_VERDICT[self]

    @property
    def is_problem_free(self) -> bool:
        """Whether the file is `identical` or `whole`, so that nothing is reported."""
        return self.severity == 0


_SEVERITY_BY_VERDICT: Final = {
    Verdict.IDENTICAL: 0,
    Verdict.WHOLE: 0,
    Verdict.SAFE: 1,
    Verdict.TORN: 2,
    Verdict.BROKEN: 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What the broker's next start does to a log.

    Attributes:
        action: what the broker does with the segment, a `StartupAction` of `kidxlib.audit.startup.simulation`; None if
            the start fails before it.
        kept_bytes: how many bytes of the log are left after it.
        lost_bytes, lost_batches, lost_records: what the start drops of the log; if it drops nothing, what recovery
            would drop. None if it is not known for certain.
    """

    action: str | None = None
    kept_bytes: int | None = None
    lost_bytes: int | None = None
    lost_batches: int | None = None
    lost_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of an audit on one file of a segment: an index or auxiliary file, or the log itself.

    Attributes:
        file: the file's suffix.
        verdict: how good the file is.
        reason: a short word, the same for all findings of this kind; None for an identical or whole file.
        position: the first byte of the file that is wrong or different; None if there is none, or the file is missing.
        detail: what was found there, and what recovery would have written.
        consequence: what this leads to, or why it is harmless; None for an identical file.
        fate: what the next start does to a log; set after its partition was audited as a whole.
    """

    file: str
    verdict: Verdict
    reason: str | None = None
    position: int | None = None
    detail: str | None = None
    consequence: str | None = None
    fate: Fate | None = None


#: Stands between the details of a finding that is made of several.
ALSO: Final = "; also "


def worse(finding: Finding, other: Finding) -> Finding:
    """The worse of two findings on a log, or the first if they are equally bad; its detail names the other one."""
    if other.verdict.severity > finding.verdict.severity:
        finding, other = other, finding
    if other.reason is None or other.reason == finding.reason:
        return finding
    where = "" if other.position is None else f" at byte {other.position}"
    return replace(finding, detail=f"{finding.detail}{ALSO}{other.reason}{where}: {other.detail}")


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """A finding, and the segment of its file.

    Attributes:
        base_offset: the segment's base offset; for a file of the whole partition, that of the first segment.
        finding: the finding on the file.
        beside_logs: whether it is the broker's own file beside the logs, while index files are looked for elsewhere.
    """

    base_offset: int
    finding: Finding
    beside_logs: bool = False


#: The reason if a broker is writing to the log.
IN_USE: Final = "in-use"

#: Verdicts that are reported.
WORST_FIRST: Final = (Verdict.BROKEN, Verdict.TORN, Verdict.SAFE)

#: Verdicts that are more than a remark.
DAMAGE: Final = (Verdict.BROKEN, Verdict.TORN)
