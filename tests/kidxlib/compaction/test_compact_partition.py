"""Which files of a partition's directory nothing needs; whatever is not known for sure stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from kidxlib.compaction.compact_partition import Orphan, OrphanReason, find_orphans
from kidxlib.format.segment_files import segment_file
from kidxlib.text.times import NS_PER_MS
from tests.support.compaction import options

NOW = NS_PER_MS
OPTIONS = replace(options(), clock_ms=1, staged_delay_ns=100, delete_delay_ns=10)
BASES = (0, 50)


@dataclass(frozen=True)
class Status:
    """Of a file that was renamed at one time and written at another."""

    st_mtime_ns: int = 0
    st_ctime_ns: int = 0
    st_size: int = 7


def found(files: dict[str, Status], bases: Iterable[int] = BASES) -> list[Orphan]:
    return list(find_orphans(files, list(bases), OPTIONS))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (segment_file(0, ".index"), None),
        (segment_file(50, ".snapshot"), None),
        (segment_file(7, ".index"), OrphanReason.NO_SEGMENT),
        (segment_file(7, ".timeindex"), OrphanReason.NO_SEGMENT),
        (segment_file(7, ".txnindex"), OrphanReason.NO_SEGMENT),
        (segment_file(7, ".log"), None),
        (segment_file(7, ".snapshot"), OrphanReason.STRAY_SNAPSHOT),
        (segment_file(99, ".snapshot"), None),  # of the log's end
        (segment_file(0, ".log.deleted"), OrphanReason.DELETED),
        (segment_file(7, ".index.deleted"), OrphanReason.DELETED),
        ("notes.deleted", None),
        (segment_file(7, ".txt.deleted"), None),
        (".kidx-1-a.tmp", OrphanReason.STAGED),
        (".kidx-1-a", None),
        ("leader-epoch-checkpoint", None),
        ("7.index", None),
    ],
)
def test_each_kind_of_file(name: str, reason: OrphanReason | None) -> None:
    assert found({name: Status()}) == ([] if reason is None else [Orphan(name, reason, 7)])


def test_young_files_stay() -> None:
    """A staged one by when it was written, a deleted one by when it was renamed."""
    staged, deleted = ".kidx-1-a.tmp", segment_file(0, ".log.deleted")
    for name, young, old in (
        (staged, Status(NOW - 99, 0), Status(NOW - 100, NOW)),
        (deleted, Status(0, NOW - 9), Status(NOW, NOW - 10)),
    ):
        assert found({name: young}) == []
        assert [orphan.name for orphan in found({name: old})] == [name]


def test_of_several_snapshots_behind_the_log_the_last_stays() -> None:
    names = [segment_file(offset, ".snapshot") for offset in (60, 70, 49)]
    assert {orphan.name for orphan in found(dict.fromkeys(names, Status()))} == {names[0], names[2]}
    assert len(found(dict.fromkeys(names, Status()), bases=())) == 3, "of no segment"


def test_a_log_is_removed_after_all_else() -> None:
    names = [segment_file(base, suffix) for base in (0, 1) for suffix in (".log.deleted", ".index.deleted")]
    ordered = [orphan.name for orphan in found(dict.fromkeys(names, Status()))]
    assert ordered == [names[1], names[3], names[0], names[2]]
