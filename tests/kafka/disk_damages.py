"""What may have become of a killed broker's partition, each damage by itself, at places that random numbers choose."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from kidxlib.errors import MalformedRecordsError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.layouts import BATCH_V2, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.storage.opened_log import LogFile
from tests.kafka.crashed import INDEX_SUFFIXES

_Do: TypeAlias = Callable[[Path, random.Random], object]

_PAGE: Final = 4096
_HEADER: Final = BATCH_V2.itemsize
_LAST, _FINISHED = -1, -2


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage of one partition.

    Attributes:
        do: it, to the partition's directory.
        headers_tell: a kill may leave this, or batch headers and the ends of segments show it. Else it is none that a
            kernel that still has all pages can have made, and `--trust-page-cache` does not look for it.
        drops: a broker cuts something off, or drops it.
        keeps_epochs: without leader epochs no broker finds anything in a bucket.
        keeps_snapshots: without any producer snapshot a marker may be refused.
    """

    name: str
    do: _Do
    headers_tell: bool = True
    drops: bool = False
    keeps_epochs: bool = True
    keeps_snapshots: bool = True


def batches_of(path: Path) -> list[Batch]:
    """The batches of a sound log, up to the zeros of one that is preallocated."""
    log, found = LogFile(str(path)), list[Batch]()
    with contextlib.closing(log), contextlib.suppress(MalformedRecordsError):
        for batch in batches(log):
            found.append(batch)
    return found


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{LOG_SUFFIX}"))


def _in_log(number: int, do: _Do) -> _Do:
    """A damage of the last log, or of the last one that is finished."""
    return lambda directory, rng: do(_logs(directory)[number], rng)


def _cut_in_header(log: Path, rng: random.Random) -> None:
    os.truncate(log, batches_of(log)[-1].position + rng.randrange(1, _HEADER))


def _cut_between(log: Path, rng: random.Random) -> None:
    found = batches_of(log)
    os.truncate(log, rng.choice(found[1:] or found).position)


def _cut_in_records(log: Path, rng: random.Random) -> None:
    batch = rng.choice(batches_of(log))
    os.truncate(log, batch.position + rng.randrange(_HEADER, batch.size))


def _empty(log: Path, rng: random.Random) -> None:
    os.truncate(log, 0)


def _zeros_after(log: Path, rng: random.Random) -> None:
    os.truncate(log, log.stat().st_size + rng.choice([1, _HEADER - 1, _PAGE]))


def _garbage_after(log: Path, rng: random.Random) -> None:
    with log.open("ab") as file:
        file.write(rng.randbytes(rng.choice([1, _HEADER - 1, _PAGE])))


def _zeros_over(log: Path, rng: random.Random) -> None:
    _over_last_page(log, bytes(2 * _PAGE), least=_HEADER)


def _garbage_over(log: Path, rng: random.Random) -> None:
    _over_last_page(log, rng.randbytes(2 * _PAGE), least=_HEADER)


def _over_last_page(path: Path, content: bytes, used: int | None = None, least: int = 1) -> None:
    """Put something in place of the last page of a file, or of its used part.

    Args:
        least: how many bytes at least: of fewer the page before it, too.
    """
    end = path.stat().st_size if used is None else used
    start = max(end - least, 0) // _PAGE * _PAGE
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content[: end - start])


def _break_off(first: int) -> _Do:
    """Zeros from a place in the last batch on, that many bytes behind its beginning or later: a preallocated log."""

    def break_off(log: Path, rng: random.Random) -> None:
        batch = batches_of(log)[-1]
        with log.open("r+b") as file:
            file.seek(batch.position + rng.randrange(first, _HEADER if first < _HEADER else batch.size))
            file.write(bytes(batch.size))

    return break_off


def _all_zeros(log: Path, rng: random.Random) -> None:
    log.write_bytes(bytes(log.stat().st_size))


def _flip(log: Path, rng: random.Random) -> None:
    """A bit in the records of a batch that is not the last one."""
    found = batches_of(log)
    batch = rng.choice(found[:-1] or found)
    with log.open("r+b") as file:
        file.seek(at := batch.position + rng.randrange(_HEADER, batch.size))
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def _remove(*suffixes: str) -> _Do:
    def remove(directory: Path, rng: random.Random) -> None:
        for path in list(directory.iterdir()):
            if path.name.endswith(suffixes):
                path.unlink()

    return remove


def _remove_last_snapshots(directory: Path, rng: random.Random) -> None:
    for path in sorted(directory.glob(f"*{SNAPSHOT_SUFFIX}"))[-rng.randint(1, 2) :]:
        path.unlink()


def _spoil_last_snapshot(directory: Path, rng: random.Random) -> None:
    path = max(directory.glob(f"*{SNAPSHOT_SUFFIX}"))
    path.write_bytes(rng.randbytes(path.stat().st_size))


def _cut_transaction_index(directory: Path, rng: random.Random) -> None:
    indexes = [path for path in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}") if path.stat().st_size]
    os.truncate(max(indexes), 0)


def _leave_files(directory: Path, rng: random.Random) -> None:
    """Of a compaction that had not come to its end, of a deletion, and indexes without a log."""
    for log in _logs(directory)[:2]:
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX):
            there = log.with_suffix(suffix)
            shutil.copyfile(there, f"{there}{DELETED_SUFFIX}")
            shutil.copyfile(there, f"{there}{CLEANED_SUFFIX}")
    (directory / f"{10**6:020}{OFFSET_INDEX_SUFFIX}").write_bytes(bytes(16))


def _leave_renamed(directory: Path, rng: random.Random) -> None:
    """Of a compaction that was about to rename its files: one has its next name, others not yet. All are dropped."""
    log = _logs(directory)[0]
    shutil.copyfile(log, f"{log}{CLEANED_SUFFIX}")
    index = log.with_suffix(OFFSET_INDEX_SUFFIX)
    shutil.copyfile(index, f"{index}{SWAP_SUFFIX}")


def _lose_index_page(suffix: str, entry_bytes: int, *, is_cut: bool) -> _Do:
    """The last page of an index is zeros, or not there: of the last segment, and of the one before it."""

    def lose(directory: Path, rng: random.Random) -> None:
        for number in (_FINISHED, _LAST):
            index = _logs(directory)[number].with_suffix(suffix)
            used = len(index.read_bytes().rstrip(b"\0")) // entry_bytes * entry_bytes + entry_bytes
            used = min(used, index.stat().st_size)
            assert number == _LAST or used > _PAGE, (index, used)
            if is_cut:
                os.truncate(index, (used - 1) // _PAGE * _PAGE // entry_bytes * entry_bytes)
            else:
                _over_last_page(index, bytes(_PAGE), used)

    return lose


def _nothing(directory: Path, rng: random.Random) -> None:
    pass


#: Of a partition's last log, or of one that the broker had finished, behind which it had gone on.
_OF_LOGS: Final[Mapping[str, _Do]] = MappingProxyType(
    {
        "cut in a header": _cut_in_header,
        "cut between batches": _cut_between,
        "cut in records": _cut_in_records,
        "cut to nothing": _empty,
        "zeros after it": _zeros_after,
        "zeros in its last page": _zeros_over,
        "garbage after it": _garbage_after,
        "garbage in its last page": _garbage_over,
        "nothing but zeros": _all_zeros,
        "a bit is another": _flip,
    }
)
_UNTOLD: Final = frozenset({"a bit is another"})
#: What is left is a log as any other.
_UNSEEN: Final = frozenset({"cut between batches", "cut to nothing"})


def _of_logs(number: int) -> list[Damage]:
    which = "the last log" if number == _LAST else "a finished log"
    return [
        Damage(f"{which}, {name}", _in_log(number, do), name not in _UNTOLD, name not in _UNSEEN)
        for name, do in _OF_LOGS.items()
    ]


_WHOLE: Final = Damage("whole", _nothing)
_OF_SIDE_FILES: Final = [
    Damage("no snapshots", _remove(SNAPSHOT_SUFFIX), keeps_snapshots=False),
    Damage("without the last snapshots", _remove_last_snapshots),
    Damage("a snapshot that cannot be read", _spoil_last_snapshot),
    Damage("no leader epochs", _remove(LEADER_EPOCH_CHECKPOINT), keeps_epochs=False),
    Damage("no indexes", _remove(*INDEX_SUFFIXES)),
    Damage(
        "only logs",
        _remove(*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT),
        keeps_epochs=False,
        keeps_snapshots=False,
    ),
    Damage("an index of aborted transactions was cut", _cut_transaction_index, headers_tell=False),
    Damage("files that are to go", _leave_files),
    Damage("files that were about to be renamed", _leave_renamed),
]
_OF_PAGES: Final = [
    Damage(f"{what} the last page of {suffix}", _lose_index_page(suffix, entry_bytes, is_cut=is_cut), not is_cut)
    for suffix, entry_bytes in (
        (OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY.itemsize),
        (TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY.itemsize),
    )
    for is_cut, what in ((True, "without"), (False, "zeros in"))
]
_SOME_OF_ALL: Final = [_WHOLE, *_of_logs(_LAST), *_of_logs(_FINISHED), *_OF_SIDE_FILES]

#: By kind of topic, a damage for each partition.
DAMAGES: Final[Mapping[str, Sequence[Damage]]] = MappingProxyType(
    {
        "deleted": _SOME_OF_ALL,
        "compacted": _SOME_OF_ALL,
        "tiered": _SOME_OF_ALL,
        "preallocated": [
            Damage("whole", _nothing, drops=True),
            Damage("an append is broken off in a header", _in_log(_LAST, _break_off(1)), drops=True),
            Damage("an append is broken off in records", _in_log(_LAST, _break_off(_HEADER)), drops=True),
        ],
        "paged": [_WHOLE, *_OF_PAGES],
    }
)
