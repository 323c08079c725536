"""`kidx compare`, tried against a planted lack of each kind: none is called the same.

The rows of docs/safety.md on this gate are these.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import segment_file
from kidxlib.operations.compare.file_pairs import LogPair, compare_log_pair
from tests.support.audits import sound_copies
from tests.support.files import flip
from tests.support.logs.batches import batch_positions

_ORDERS, _PLAIN = "txn-mixed-0", "plain-zstd-0"
_CHECKPOINTS: Final = {"recovery-point-offset-checkpoint": 10333, "replication-offset-checkpoint": 10333}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir with all of its files, as a broker leaves it."""
    log_dir = sound_copies(tmp_path_factory.mktemp("original") / "data", _ORDERS, _PLAIN)
    for name, offset in _CHECKPOINTS.items():
        (log_dir / name).write_text(f"0\n2\nplain-zstd 0 20000\ntxn-mixed 0 {offset}\n")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n")
    return log_dir


@dataclass(frozen=True, slots=True)
class Sides:
    """A log dir and its copy, which a test changes."""

    a: Path
    b: Path

    def log(self, base_offset: int, directory: str = _ORDERS) -> Path:
        return self.b / directory / segment_file(base_offset, ".log")

    def compared(self, *options: str, a: str = "", b: str = "") -> tuple[int, dict[str, Any]]:
        """The exit code and the JSON object."""
        arguments = ["compare", a or str(self.a), b or str(self.b), "--json", *options]
        ended = CliRunner().invoke(kidx, arguments, standalone_mode=False)
        if ended.exception is not None:
            raise ended.exception
        return ended.return_value, json.loads(ended.stdout)

    def kinds(self, *options: str) -> set[str]:
        return {each["kind"] for each in self.compared(*options)[1]["findings"]}


@pytest.fixture
def sides(original: Path, tmp_path: Path) -> Sides:
    for name in ("a", "b"):
        shutil.copytree(original, tmp_path / name)
    return Sides(tmp_path / "a", tmp_path / "b")


def _cut(log: Path, less: int) -> None:
    os.truncate(log, log.stat().st_size - less)


def _without_segment(base_offset: int) -> Callable[[Sides], None]:
    def plant(sides: Sides) -> None:
        for path in (sides.b / _ORDERS).glob(f"{base_offset:020}.*"):
            path.unlink()

    return plant


def _without(suffix: str) -> Callable[[Sides], None]:
    def plant(sides: Sides) -> None:
        missing = list((sides.b / _ORDERS).glob(f"*{suffix}"))
        assert missing
        missing[0].unlink()

    return plant


def _without_file(name: str) -> Callable[[Sides], None]:
    return lambda sides: (sides.b / name).unlink()


def _without_logs(sides: Sides) -> None:
    for path in (sides.b / _ORDERS).glob("*.log"):
        path.unlink()


def _last_batch(sides: Sides) -> bytes:
    data = sides.log(5891).read_bytes()
    return data[batch_positions(data)[-1] :]


def _append(data: Callable[[Sides], bytes], base_offset: int = 5891) -> Callable[[Sides], None]:
    def plant(sides: Sides) -> None:
        with sides.log(base_offset).open("ab") as log:
            log.write(data(sides))

    return plant


def _damage(at: Callable[[list[int]], int], base_offset: int = 84) -> Callable[[Sides], None]:
    """Change a byte of a log, at a place that the starts of its batches tell."""
    return lambda sides: flip(
        sides.log(base_offset), at(batch_positions(sides.log(base_offset).read_bytes())), bits=0x40
    )


def _swap(sides: Sides) -> None:
    one, other = sides.log(84), sides.log(5797)
    both = one.read_bytes(), other.read_bytes()
    one.write_bytes(both[1]), other.write_bytes(both[0])


def _zeros(start: int, size: int) -> Callable[[Sides], None]:
    def plant(sides: Sides) -> None:
        data = bytearray(sides.log(84).read_bytes())
        data[start : start + size] = bytes(min(size, len(data) - start))
        sides.log(84).write_bytes(data)

    return plant


def _link(sides: Sides) -> None:
    shutil.rmtree(sides.b / _ORDERS)
    (sides.b / _ORDERS).symlink_to(sides.a / _ORDERS)


def _hard_link(sides: Sides) -> None:
    sides.log(84).unlink()
    os.link(sides.a / _ORDERS / segment_file(84, ".log"), sides.log(84))


def _file_instead(sides: Sides) -> None:
    shutil.rmtree(sides.b / _ORDERS)
    (sides.b / _ORDERS).write_bytes(b"")


def _directory_instead(sides: Sides) -> None:
    sides.log(84).unlink()
    sides.log(84).mkdir()


def _dangling(sides: Sides) -> None:
    sides.log(84).unlink()
    sides.log(84).symlink_to("nowhere")


def _other_segments(sides: Sides) -> None:
    """The first segment's log divided into two."""
    data = sides.log(84).read_bytes()
    at = batch_positions(data)[5]
    (base_offset,) = struct.unpack_from(">q", data, at)
    sides.log(84).write_bytes(data[:at])
    sides.log(base_offset).write_bytes(data[at:])


def _moved(sides: Sides) -> None:
    (sides.b / _ORDERS).rename(sides.b / f"{_ORDERS}.{'0' * 32}-stray")


def _old_index(sides: Sides) -> bytes:
    return sides.log(84).with_suffix(".index").read_bytes()


def _on_its_way(sides: Sides) -> None:
    shutil.copytree(sides.b / _PLAIN, sides.b / f"x-0.{'0' * 32}-future")
    for name in _CHECKPOINTS:
        (sides.b / name).write_text("0\n3\nplain-zstd 0 20000\ntxn-mixed 0 10333\nx 0 20000\n")


def _text(name: str, old: str, new: str) -> Callable[[Sides], None]:
    def plant(sides: Sides) -> None:
        path = sides.b / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return plant


def _of_both(plant: Callable[[Sides], None]) -> Callable[[Sides], None]:
    def plant_twice(sides: Sides) -> None:
        plant(sides)
        plant(Sides(sides.b, sides.a))

    return plant_twice


def _stopped_cleanly(sides: Sides) -> None:
    (sides.b / ".kafka_cleanshutdown").write_text("{}")


#: By name: how it is planted, and the kind by which it is found. Each ends with 3.
LACKS: Final[dict[str, tuple[Callable[[Sides], Any], str]]] = {
    "a partition": (lambda sides: shutil.rmtree(sides.b / _ORDERS), "missing"),
    "a partition that was set aside": (_moved, "missing"),
    "a partition that a checkpoint knows": (_of_both(lambda sides: shutil.rmtree(sides.b / _ORDERS)), "neither"),
    "a file in place of a directory": (_file_instead, "not-comparable"),
    "a symlink in place of a directory": (_link, "no-copy"),
    "a hard link in place of a log": (_hard_link, "no-copy"),
    "the first segment": (_without_segment(0), "lacks"),
    "a middle segment": (_without_segment(84), "lacks"),
    "the last segment": (_without_segment(5891), "behind"),
    "a middle segment on both sides": (_of_both(_without_segment(84)), "neither"),
    "all logs": (_without_logs, "lacks"),
    "the log of a segment": (lambda sides: sides.log(84).unlink(), "lacks"),
    "a directory in place of a log": (_directory_instead, "not-comparable"),
    "a dangling symlink in place of a log": (_dangling, "not-comparable"),
    "the last batch": (lambda sides: _cut(sides.log(5891), len(_last_batch(sides))), "behind"),
    "the last batch of a middle segment": (lambda sides: _cut(sides.log(84), 1316), "lacks"),
    "the last byte": (lambda sides: _cut(sides.log(5891), 1), "behind"),
    "the last byte of a middle segment": (lambda sides: _cut(sides.log(84), 1), "lacks"),
    "all behind a page": (lambda sides: os.truncate(sides.log(5891), 4096), "behind"),
    "all bytes of the only log with data": (lambda sides: os.truncate(sides.log(0, _PLAIN), 0), "lacks"),
    "a byte of a header": (_damage(lambda batches: batches[3] + 24), "differs"),
    "a byte of records": (_damage(lambda batches: batches[3] + 200), "differs"),
    "a byte of a base offset": (_damage(lambda batches: batches[3] + 7), "differs"),
    "a byte of a batch's length": (_damage(lambda batches: batches[3] + 9), "differs"),
    "the last byte changed": (_damage(lambda batches: -1, 5891), "differs"),
    "a batch twice": (_append(_last_batch), "differs"),
    "a batch twice in a middle segment": (_append(_last_batch, 84), "differs"),
    "two segments swapped": (_swap, "differs"),
    "a segment of another topic": (
        lambda sides: shutil.copy(sides.log(0, _PLAIN), sides.log(84)),
        "differs",
    ),
    "zeros in the middle": (_zeros(40_960, 8192), "differs"),
    "zeros to the end of a middle segment": (_zeros(40_960, 2**30), "lacks"),
    "other segments": (_other_segments, "other-segments"),
    "another topic id": (
        lambda sides: shutil.copy(sides.b / _PLAIN / "partition.metadata", sides.b / _ORDERS),
        "other-origin",
    ),
    "another cluster": (_text("meta.properties", "cluster.id=c", "cluster.id=e"), "other-origin"),
    "another broker": (_text("meta.properties", "node.id=1", "node.id=2"), "other-origin"),
    "another log dir": (_text("meta.properties", "directory.id=d", "directory.id=e"), "other-origin"),
    "an .index": (_without(".index"), "file-missing"),
    "a .timeindex": (_without(".timeindex"), "file-missing"),
    "a .txnindex": (_without(".txnindex"), "file-missing"),
    "a .snapshot": (_without(".snapshot"), "file-missing"),
    "leader epochs": (_without("leader-epoch-checkpoint"), "file-missing"),
    "partition.metadata": (_without("partition.metadata"), "file-missing"),
    "meta.properties": (_without_file("meta.properties"), "file-missing"),
    "a checkpoint": (_without_file("replication-offset-checkpoint"), "file-missing"),
    "a checkpoint that is behind": (_text("replication-offset-checkpoint", "20000", "19000"), "file-behind"),
    "a partition in a checkpoint": (
        lambda sides: (sides.b / "recovery-point-offset-checkpoint").write_text("0\n1\nplain-zstd 0 20000\n"),
        "file-behind",
    ),
    "a checkpoint that is no such file": (_text("replication-offset-checkpoint", "20000", "many"), "not-comparable"),
    "a log start above the original's": (
        lambda sides: (sides.b / "log-start-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 500\n"),
        "lacks",
    ),
    "what the high watermark knows, on both sides": (
        _of_both(lambda sides: _cut(sides.log(5891), len(_last_batch(sides)))),
        "neither",
    ),
    "all logs, on both sides": (_of_both(_without_logs), "neither"),
    "an .index that differs": (lambda sides: flip(sides.log(84).with_suffix(".index"), 3, bits=0x40), "file-differs"),
    "the end of an old .index": (lambda sides: _cut(sides.log(84).with_suffix(".index"), 8), "file-differs"),
    "bytes behind an old .index": (
        lambda sides: sides.log(84).with_suffix(".index").write_bytes(_old_index(sides) + bytes(8) + b"\1"),
        "file-differs",
    ),
    "what says that its broker recovers": (_stopped_cleanly, "file-differs"),
    "what says that its broker need not recover": (
        lambda sides: _stopped_cleanly(Sides(sides.b, sides.a)),
        "file-missing",
    ),
    "a leader epoch": (
        lambda sides: (sides.b / _ORDERS / "leader-epoch-checkpoint").write_text("0\n0\n"),
        "file-differs",
    ),
}


@pytest.mark.parametrize("name", LACKS)
def test_a_lack_is_found(name: str, sides: Sides) -> None:
    plant, kind = LACKS[name]
    plant(sides)
    code, compared = sides.compared()
    found = {each["kind"] for each in compared["findings"]}
    assert code == 3 and kind in found, compared["findings"]
    assert not found - {kind} - {"only-in-b", "behind", "missing", "differs", "not-comparable"}, compared["findings"]


#: What a copy may have: by name, how it comes about, and as what it is listed. Each ends with 0.
HARMLESS: Final[dict[str, tuple[Callable[[Sides], Any], set[str]]]] = {
    "nothing": (lambda sides: None, set()),
    "all logs of A": (lambda sides: _without_logs(Sides(sides.b, sides.a)), {"only-in-b"}),
    "a partition that A lacks": (lambda sides: shutil.rmtree(sides.a / _PLAIN), {"only-in-b"}),
    "batches beyond the end of A": (
        lambda sides: os.truncate(sides.a / _ORDERS / segment_file(5891, ".log"), 4096),
        {"only-in-b"},
    ),
    "room that was preallocated": (_append(lambda sides: bytes(100_000)), set()),
    "room in an active index": (
        lambda sides: os.truncate(sides.log(5891).with_suffix(".index"), 1_000_000),
        set(),
    ),
    "a partition that is being deleted": (
        lambda sides: shutil.copytree(sides.a / _PLAIN, sides.a / f"x-0.{'0' * 32}-delete"),
        {"not-compared"},
    ),
    "a clean shutdown": (_of_both(_stopped_cleanly), set()),
    "lost+found": (lambda sides: (sides.a / "lost+found").mkdir(), {"not-compared"}),
    "a file of the cleaner": (
        lambda sides: shutil.copy(sides.log(84), sides.log(84).with_suffix(".log.swap")),
        {"only-in-b"},
    ),
    "a partition on its way, which checkpoints name": (_of_both(_on_its_way), set()),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_copy_may_have(name: str, sides: Sides) -> None:
    plant, kinds = HARMLESS[name]
    plant(sides)
    code, compared = sides.compared()
    assert (code, {each["kind"] for each in compared["findings"]}) == (0, kinds), compared["findings"]


def test_what_behind_allows(sides: Sides) -> None:
    """An earlier end, and nothing else: neither a segment in the middle nor a copy without a record."""
    _cut(sides.log(5891), 79)
    assert sides.compared()[0] == 3
    code, compared = sides.compared("--allow-behind")
    ends = {each["directory"]: (each["same_to_offset"], each["a_end_offset"]) for each in compared["partitions"]}
    assert code == 0 and ends[_ORDERS] < (10332, 10333) and ends[_PLAIN] == (20000, 20000)
    _without_segment(84)(sides)
    assert sides.compared("--allow-behind")[0] == 3
    shutil.rmtree(sides.b / _ORDERS)
    shutil.copytree(sides.a / _ORDERS, sides.b / _ORDERS)
    for log in (sides.b / _ORDERS).glob("*.log"):
        os.truncate(log, 0)
    assert sides.compared("--allow-behind")[0] == 3


@pytest.mark.parametrize("how", ["copy", "replica"])
def test_how_many_segments_may_be_lacking_at_the_end(sides: Sides, how: str) -> None:
    """Whole ones: a copy of a running broker lacks the end of its last one."""

    def codes() -> list[int]:
        return [sides.compared("--as", how, *("--max-behind", str(most)))[0] for most in range(3)]

    log = sides.log(5891)
    whole = log.read_bytes()
    for without_a_batch in (b"", whole[:50], bytes(len(whole))):
        log.write_bytes(without_a_batch)
        assert codes() == [3, 0, 0], without_a_batch[:60]
    log.write_bytes(whole[:-79])
    assert codes() == [0, 0, 0]
    for base_offset, expected in ((5891, [3, 0, 0]), (5797, [3, 3, 0]), (84, [3, 3, 3])):
        _without_segment(base_offset)(sides)
        assert codes() == expected
        assert sides.compared("--as", how, "--allow-behind")[0] == 0
    code, compared = sides.compared("--as", how, "--max-behind", "2")
    assert code == 3 and [each["segments"] for each in compared["findings"] if each["kind"] == "behind"] == [3]


def _merged(sides: Sides) -> None:
    """In B the cleaner has merged the first two segments."""
    data = sides.log(84).read_bytes()
    _append(lambda _: data, 0)(sides)
    _without_segment(84)(sides)


def _merged_without_batches(sides: Sides) -> None:
    _merged(sides)
    data = sides.log(0).read_bytes()
    batches = batch_positions(data)
    sides.log(0).write_bytes(data[: batches[-4]] + data[batches[-3] :])


def _merged_and_cleaned(sides: Sides) -> None:
    """A batch of B has fewer records than offsets, and another checksum."""
    _merged(sides)
    data = bytearray(sides.log(0).read_bytes())
    at, end = batch_positions(data)[-2:]
    (count,) = struct.unpack_from(">i", data, at + 57)
    struct.pack_into(">i", data, at + 57, count - 1)
    struct.pack_into(">I", data, at + 17, google_crc32c.value(bytes(data[at + 21 : end])))
    sides.log(0).write_bytes(data)


def _merged_and_damaged(sides: Sides) -> None:
    _merged(sides)
    flip(sides.log(0), -200, bits=0x40)


def _merged_and_behind(sides: Sides) -> None:
    _merged(sides)
    _cut(sides.log(5891), 79)


#: Segments that are cut elsewhere: how it comes about, what is said of logs, and the exit code where B may be older.
CUT_ELSEWHERE: Final[dict[str, tuple[Callable[[Sides], Any], set[str], int]]] = {
    "merged in B": (_merged, set(), 0),
    "merged in A": (lambda sides: _merged(Sides(sides.b, sides.a)), set(), 0),
    "divided in B": (_other_segments, set(), 0),
    "merged in B, which ends earlier": (_merged_and_behind, {"behind"}, 0),
    "merged in B, which lacks batches": (_merged_without_batches, {"lacks"}, 3),
    "merged in A, which lacks batches": (lambda sides: _merged_without_batches(Sides(sides.b, sides.a)), set(), 0),
    "merged in B, and cleaned": (_merged_and_cleaned, {"not-comparable"}, 3),
    "merged in B, and damaged": (_merged_and_damaged, {"not-comparable"}, 3),
}


@pytest.mark.parametrize("name", CUT_ELSEWHERE)
def test_batches_in_other_segments_are_not_lacked(name: str, sides: Sides) -> None:
    plant, kinds, code = CUT_ELSEWHERE[name]
    plant(sides)
    ended, compared = sides.compared("--logs-only")
    found = {each["kind"] for each in compared["findings"]} - {"only-in-b", "file-missing", "file-differs"}
    assert (ended, found) == (3, {"other-segments", *kinds}), compared["findings"]
    assert sides.compared("--allow-behind", "--logs-only")[0] == code
    [orders] = [each for each in compared["partitions"] if each["directory"] == _ORDERS]
    if name == "merged in B":
        assert orders["same_to_offset"] == 10333


def test_a_log_without_bytes_lacks_no_offset(sides: Sides) -> None:
    """As a cleaner leaves the first one: it is missing as a file."""
    _without_segment(0)(sides)
    os.truncate(sides.a / _ORDERS / segment_file(0, ".log"), 0)
    assert sides.kinds() == {"file-missing", "neither"}


def _last_index_is_behind(sides: Sides) -> None:
    """B as it was before the last batches: A has gone on with an epoch, an index, and a snapshot."""
    log = sides.log(5891)
    _cut(log, len(_last_batch(sides)))
    end = _offset_of_last_batch(Sides(sides.b, sides.a))
    for suffix, entry in ((".index", 8), (".timeindex", 12)):
        _cut(log.with_suffix(suffix), entry)
    for side, epoch in ((sides.a, 4), (sides.b, 2)):
        (side / _ORDERS / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n{epoch} {end}\n")


def _offset_of_last_batch(sides: Sides) -> int:
    (offset,) = struct.unpack_from(">q", _last_batch(sides))
    return int(offset)


def _new_segment(sides: Sides) -> None:
    """A has rolled where B ends, and has a snapshot, and of its first transaction there an index."""
    _last_index_is_behind(sides)
    end = _offset_of_last_batch(Sides(sides.b, sides.a))
    log = sides.a / _ORDERS / segment_file(5891, ".log")
    shutil.copy(next((sides.a / _ORDERS).glob("*.snapshot")), sides.a / _ORDERS / segment_file(end, ".snapshot"))
    (sides.a / _ORDERS / segment_file(end, ".log")).write_bytes(_last_batch(Sides(sides.b, sides.a)))
    os.truncate(log, sides.log(5891).stat().st_size)
    log.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 1, end, end, end))
    sides.log(5891).with_suffix(".txnindex").unlink(missing_ok=True)


def _log_start_moved(sides: Sides) -> None:
    _last_index_is_behind(sides)
    path = sides.a / _ORDERS / "leader-epoch-checkpoint"
    path.write_text(path.read_text().replace("0 0\n", "0 3500\n"))


#: What an older copy may have otherwise: how it comes about, and what is wrong none the less.
OLDER: Final[dict[str, tuple[Callable[[Sides], Any], Callable[[Sides], Any]]]] = {
    "files of the last log": (
        _last_index_is_behind,
        lambda sides: flip(sides.log(5891).with_suffix(".index"), 3, bits=0x40),
    ),
    "files at the end": (
        _new_segment,
        lambda sides: (sides.b / _ORDERS / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n"),
    ),
    "an aborted transaction before the end": (
        _new_segment,
        lambda sides: (sides.a / _ORDERS / segment_file(5891, ".txnindex")).write_bytes(
            struct.pack(">hqqqq", 0, 1, 5891, 5892, 5892)
        ),
    ),
    "a log start that A has moved": (
        _log_start_moved,
        lambda sides: (sides.b / _ORDERS / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n"),
    ),
    "epochs at the end of a partition without a difference": (
        lambda sides: (
            (sides.b / _PLAIN / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 20000\n")
            and (sides.a / _PLAIN / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 20000\n")
        ),
        lambda sides: (sides.b / _PLAIN / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 19999\n"),
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_files_of_an_older_copy_end_earlier(name: str, sides: Sides) -> None:
    older, wrong = OLDER[name]
    older(sides)
    code, compared = sides.compared("--allow-behind")
    kinds = [each["kind"] for each in compared["findings"]]
    assert code == 0 and not {"file-differs", "file-missing"} & {*kinds}, compared["findings"]
    verdicts = {each["directory"]: each["verdict"] for each in compared["partitions"]}
    assert "behind" not in kinds or verdicts[_ORDERS] == "behind"
    wrong(sides)
    assert sides.compared("--allow-behind")[0] == 3


def test_what_a_broker_writes_meanwhile_is_counted_and_not_judged(sides: Sides) -> None:
    """A log that is longer than when it was listed, and one that is shorter."""
    logs = [sides.a / _ORDERS / segment_file(5891, ".log"), sides.log(5891)]
    sizes = [log.stat().st_size for log in logs]
    pair = LogPair(
        directory=_ORDERS,
        base_offset=5891,
        one=str(logs[0]),
        other=str(logs[1]),
        one_bytes=sizes[0],
        other_bytes=sizes[1],
    )
    _append(lambda _: b"more")(Sides(sides.b, sides.a))
    grown = compare_log_pair(pair, False)
    assert (grown.one_grew, grown.other_grew, grown.same_bytes, grown.problem) == (4, 0, sizes[0], None)
    _cut(logs[1], 1)
    assert "when it was listed; compare again" in str(compare_log_pair(pair, False).problem)


def test_files_beside_the_logs_need_not_count(sides: Sides) -> None:
    for name in (".index", ".snapshot"):
        _without(name)(sides)
    (sides.b / "replication-offset-checkpoint").unlink()
    assert sides.compared()[0] == 3 and sides.compared("--logs-only")[0] == 0
    _cut(sides.log(84), 1)
    assert sides.compared("--logs-only")[0] == 3


def test_the_log_dirs_of_a_broker_are_one_side(sides: Sides) -> None:
    """Two log dirs of B hold what one of A does; with one of them alone a partition is missing."""
    second = sides.b.parent / "second"
    second.mkdir()
    (sides.b / _PLAIN).rename(second / _PLAIN)
    (second / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=e\n")
    options = ("--as", "replica")
    assert sides.compared(*options, b=f"{sides.b},{second}")[0] == 0
    code, compared = sides.compared(*options, a=str(sides.b), b=str(second))
    said = "A and B are log dirs of one broker (node.id 1), which has each partition once"
    assert code == 3 and any(said in each["detail"] for each in compared["findings"])
    empty = sides.b.parent / "empty"  # a log dir whose copy has failed leaves out its partitions, and no other's
    empty.mkdir()
    for also, kinds in ((second, {"other-origin"}), (empty, {"missing"})):
        code, compared = sides.compared(b=f"{sides.b},{also}")
        assert (code, {each["kind"] for each in compared["findings"]}) == (3, kinds)
    with pytest.raises(UsageError, match="no partition directory, and nothing was compared"):
        sides.compared(*options, a=f"{sides.a},{empty}")
    shutil.copy(second / "meta.properties", empty)
    assert sides.compared(*options, a=f"{sides.a},{empty}", b=f"{sides.b},{second}")[0] == 0
    assert {each["kind"] for each in sides.compared(*options)[1]["findings"]} == {"missing"}
    assert sides.compared(*options, a=str(sides.a / _PLAIN), b=str(second))[0] == 0
    (second / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n")
    with pytest.raises(UsageError, match=r"directory\.id d, as .* has it"):
        sides.compared(b=f"{sides.b},{second}")


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("{a}", "{a}", "it is on both sides"),
        ("{a}", "{a}/../a", "it is on both sides"),
        ("{a},{a}", "{b}", "is in it twice"),
        ("{a}", "{b}/nowhere", "No such file or directory; expected a Kafka log dir"),
        ("{a}", "{a}/meta.properties", "Not a directory; expected a Kafka log dir"),
        ("{a}", "{empty}", "no partition directory, and nothing was compared"),
        ("{empty}", "{b}", "no partition directory, and nothing was compared"),
        ("{above}", "{b}", "holds segments; .* has some.*: name"),
        ("{a}/txn-mixed-0", "{b}/plain-zstd-0", "two partitions; name the same of both sides"),
        ("{a}", "gs://bucket/prefix", "expected the path of a directory, or s3://"),
    ],
)
def test_what_cannot_be_compared_is_refused(a: str, b: str, message: str, sides: Sides) -> None:
    places = {"a": sides.a, "b": sides.b, "above": sides.a.parent, "empty": sides.a.parent / "empty"}
    places["empty"].mkdir()
    with pytest.raises(UsageError, match=message):
        sides.compared(a=a.format(**places), b=b.format(**places))


def _resegmented(sides: Sides) -> None:
    """All segments of B are one."""
    logs = sorted((sides.b / _ORDERS).glob("*.log"))
    logs[0].write_bytes(b"".join(log.read_bytes() for log in logs))
    for path in (sides.b / _ORDERS).iterdir():
        if path.name[:20].isdigit() and path != logs[0]:
            path.unlink()


def _with_epoch(sides: Sides) -> None:
    data = bytearray(sides.log(84).read_bytes())
    struct.pack_into(">i", data, batch_positions(data)[3] + 12, 7)
    sides.log(84).write_bytes(data)


def _cleaned(sides: Sides) -> None:
    """A cleaner has taken a batch out of B, and says how far it has come."""
    data = sides.log(84).read_bytes()
    first, end = batch_positions(data)[3:5]
    sides.log(84).write_bytes(data[:first] + data[end:])
    (sides.b / "cleaner-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 5891\n")


def _cleaned_and_behind(sides: Sides) -> None:
    _cleaned(sides)
    _cut(sides.log(5891), 78)


#: What replicas may have: how it comes about, the kinds by which it is found, and the exit code.
REPLICAS: Final[dict[str, tuple[Callable[[Sides], Any], set[str], int]]] = {
    "the same": (lambda sides: None, set(), 0),
    "other segments": (_resegmented, set(), 0),
    "other segments in A": (lambda sides: _resegmented(Sides(sides.b, sides.a)), set(), 0),
    "no other files": (_without(".index"), set(), 0),
    "another log dir": (_text("meta.properties", "directory.id=d", "directory.id=e"), set(), 0),
    "another broker": (_text("meta.properties", "node.id=1", "node.id=2"), set(), 0),
    "another cluster": (_text("meta.properties", "cluster.id=c", "cluster.id=e"), {"other-origin"}, 3),
    "no partition": (lambda sides: shutil.rmtree(sides.b / _ORDERS), {"missing"}, 3),
    "no first segment": (_without_segment(0), {"lacks"}, 3),
    "no middle segment": (_without_segment(84), {"lacks"}, 3),
    "no middle segment in A": (lambda sides: _without_segment(84)(Sides(sides.b, sides.a)), {"lacks"}, 3),
    "no last segment": (_without_segment(5891), {"behind"}, 3),
    "no logs": (_without_logs, {"lacks"}, 3),
    "no logs in A": (lambda sides: _without_logs(Sides(sides.b, sides.a)), {"only-in-b"}, 0),
    "a batch less": (lambda sides: _cut(sides.log(84), 1316), {"lacks"}, 3),
    "a byte less": (lambda sides: _cut(sides.log(84), 1), {"not-comparable"}, 3),
    "an end before A's": (lambda sides: _cut(sides.log(5891), 1), {"behind"}, 3),
    "an end after A's": (lambda sides: _cut(sides.a / _ORDERS / segment_file(5891, ".log"), 78), {"only-in-b"}, 0),
    "a wrong byte": (_damage(lambda batches: batches[3] + 200), {"not-comparable"}, 3),
    "a wrong byte at the end": (_damage(lambda batches: -1, 5891), {"not-comparable"}, 3),
    "a wrong base offset": (_damage(lambda batches: batches[3] + 6), {"not-comparable"}, 3),
    "another leader epoch": (_with_epoch, {"differs"}, 3),
    "zeros": (_zeros(40_960, 8192), {"not-comparable"}, 3),
    "a batch twice": (_append(_last_batch), {"not-comparable"}, 3),
    "another topic's segment": (lambda sides: shutil.copy(sides.log(0, _PLAIN), sides.log(84)), {"not-comparable"}, 3),
    "a cleaner": (_cleaned, {"cleaned"}, 0),
    "a cleaner, and an end before A's": (_cleaned_and_behind, {"cleaned", "behind"}, 3),
    "no middle segment on both sides": (_of_both(_without_segment(84)), {"neither"}, 3),
    "a partition that was set aside in A": (
        lambda sides: shutil.copytree(sides.a / _PLAIN, sides.a / f"x-0.{'0' * 32}-stray"),
        {"not-compared"},
        0,
    ),
}


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas(name: str, sides: Sides) -> None:
    plant, kinds, code = REPLICAS[name]
    plant(sides)
    ended, compared = sides.compared("--as", "replica")
    assert (ended, {each["kind"] for each in compared["findings"]}) == (code, kinds), compared["findings"]


def test_sources_of_a_catalog_are_the_same_from_their_starts(sides: Sides, tmp_path: Path) -> None:
    """Whichever name comes first: digests begin where the later log does. And of no topic nothing is the same."""
    _without_segment(0)(sides)
    sources = ("--source", f"z={sides.a}", "--source", f"b={sides.b}")
    catalog = ("--catalog", str(tmp_path / "catalog"))
    built = CliRunner().invoke(kidx, ["build", *sources, "--index-dir", str(tmp_path / "index"), *catalog])
    assert built.exit_code == 0, built.output
    code, compared = sides.compared("--as", "replica", *catalog, a="z", b="b")
    [found] = [each for each in compared["findings"] if each["kind"] == "lacks"]
    assert code == 3 and (found["directory"], found["first_offset"], found["last_offset"]) == (_ORDERS, 0, 83)
    assert sides.compared("--as", "replica", *catalog, a="b", b="z")[0] == 0
    with pytest.raises(UsageError, match="z, b: no partition of a topic that matches ordres"):
        sides.compared("--as", "replica", *catalog, "--topics", "ordres", a="z", b="b")


def test_with_a_catalog_each_option_does_something_or_is_refused(sides: Sides, tmp_path: Path) -> None:
    """`b` lacks the last segment, and no digest is open: it is behind."""
    last = max((sides.b / _ORDERS).glob("*.log"))
    last.unlink()
    shutil.rmtree(sides.b / _PLAIN)
    for checkpoint in _CHECKPOINTS:
        (sides.b / checkpoint).unlink()
    sources = ("--source", f"a={sides.a}", "--source", f"b={sides.b}")
    catalog = ("--catalog", str(tmp_path / "catalog"))
    built = CliRunner().invoke(kidx, ["build", *sources, "--index-dir", str(tmp_path / "index"), *catalog])
    assert built.exit_code == 0, built.output
    of_sources = ("--as", "replica", *catalog, "--topics", "txn-mixed")
    code, compared = sides.compared(*of_sources, a="a", b="b")
    assert (code, [each["kind"] for each in compared["findings"]]) == (3, ["behind"]), compared
    assert sides.compared(*of_sources, "--allow-behind", a="a", b="b")[0] == 0
    for options, b, message in (
        (("--logs-only", *of_sources), "b", "--logs-only: not with --catalog, which compares nothing beside the lo"),
        (("--inactive-only", *of_sources), "b", "--inactive-only: only with a copy in an object store; two sources"),
        (("--allow-behind", *catalog), "s3://a/b", "--allow-behind: not with --catalog and s3://a/b, of which each"),
    ):
        with pytest.raises(UsageError, match=message):
            sides.compared(*options, a="a", b=b)
