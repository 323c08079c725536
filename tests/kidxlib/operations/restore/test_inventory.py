"""A cache of scans: the same plans, with no log read twice; and nothing that is wrong in it gets into a cluster."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.errors import KidxError, UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.backend import open_without_catalog
from kidxlib.operations.restore.inventory import SCAN_CACHE_SCHEMA
from kidxlib.operations.restore.new_nodes import UNFINISHED
from kidxlib.operations.restore.restore import RestoreRequest, restore
from kidxlib.operations.restore.restore_plan import RestoreOptions
from kidxlib.records.batch_headers import batches
from kidxlib.storage.opened_log import LogFile
from tests.faults.disks import mounted
from tests.support.logs.transactions import Written
from tests.support.restored import (
    PARTITION,
    WITHOUT_TRANSACTIONS,
    contents_of,
    formatted_log_dir,
    id_of,
    killed_log_dir,
    logs_in,
    write_folder,
)

_OPTIONS: Final = RestoreOptions(holds=True, keeps_cluster_id=False, accepts_loss=True, accepts_divergence=False)
#: What tells in the file of which log a row is.
_OF_FILE: Final = ("path", "device", "inode", "size", "mtime_ns", "ctime_ns")
_PARTITION: Final = TopicPartition("txn-mixed", 0)
_SETTINGS: Final = ("interval_bytes", "max_index_bytes")


class _Restores:
    """Plans and restores of old brokers' disks into one new broker, an hour after the disks were written.

    Attributes:
        more: other new brokers.
        read_bytes: of logs by the last plan, or by the last restore's workers.
    """

    def __init__(self, root: Path, old: Sequence[Path]) -> None:
        self.old, self.cache, self.new = old, root / "scans.parquet", formatted_log_dir(root, 1)
        self.more = list[str]()
        self.read_bytes = 0

    def run(
        self,
        apply: str | None = None,
        *,
        cached: bool = True,
        now: datetime | None = None,
        until: int | None = None,
    ) -> dict[str, Any]:
        request = RestoreRequest(
            sources=[str(log_dir) for log_dir in self.old],
            brokers=[f"1={self.new}", *self.more],
            controllers=[self.new],
            topic_configs=[],
            options=replace(_OPTIONS, until=None if until is None else {_PARTITION: until}),
            apply=apply,
            now=now or datetime.now(UTC) + timedelta(hours=1),
            scan_cache=self.cache if cached else None,
        )
        with open_without_catalog(1) as backend:
            values = dict(restore(request, backend).values)
            self.read_bytes = backend.engine.done().log_bytes
        del values["disks"]  # others write to the file system, too
        return values


def _old(root: Path, node: int = 1) -> Path:
    log_dir = killed_log_dir(root, node)
    write_folder(log_dir, WITHOUT_TRANSACTIONS, id_of("another"))
    return log_dir


def _append_garbage(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"\x01" * 100)


def _change_epoch(log: Path) -> None:
    """Give the last batch another leader epoch, which its checksum does not cover."""
    opened = LogFile(str(log))
    [*_, last] = batches(opened)
    opened.close()
    with log.open("r+b") as file:
        file.seek(last.position + 12)
        file.write((5).to_bytes(4))


def _flip(log: Path) -> None:
    """Change a byte amid the log, and set its modification time back."""
    status = log.stat()
    with log.open("r+b") as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(log: Path) -> None:
    """Put another file of the same size and time in the log's place."""
    status, content = log.stat(), log.read_bytes()
    log.unlink()
    log.write_bytes(content)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("spoil", [_append_garbage, _flip, _replace])
def test_only_what_has_changed_is_read_again(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    first, all_bytes = disk.run(), disk.read_bytes
    assert all_bytes == sum(map(len, logs_in(disk.old[0]).values()))
    assert (disk.run(), disk.read_bytes) == (first, 0)
    changed = max((disk.old[0] / PARTITION).glob(f"*{LOG_SUFFIX}"))
    spoil(changed)
    again = disk.run()
    assert disk.read_bytes == changed.stat().st_size
    assert again == disk.run(cached=False)
    applied = disk.run(again["plan"])
    assert applied["applied"] and applied["plan"] == again["plan"]
    assert logs_in(disk.new).keys() == logs_in(disk.old[0]).keys()


def test_a_log_with_damage_is_read_each_time(tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    damaged = max((disk.old[0] / PARTITION).glob(f"*{LOG_SUFFIX}"))
    _append_garbage(damaged)
    assert disk.run() == disk.run() == disk.run(cached=False)
    disk.run()
    assert disk.read_bytes == damaged.stat().st_size


def test_logs_that_are_not_copied_are_read_each_time(tmp_path: Path) -> None:
    """No copy would show that the cache is wrong about them, and they may say that records are lost."""
    disk = _Restores(tmp_path, [_old(tmp_path), _old(tmp_path, 2)])
    assert disk.run() == disk.run() == disk.run(cached=False)
    kept = {Path(str(path)).parents[1] for path in pq.read_table(disk.cache)["path"].to_pylist()}
    assert kept == {disk.old[0]}


def test_a_log_that_was_just_written_is_read_again(tmp_path: Path) -> None:
    """A write within the same tick of the clock would not show in its times."""
    disk = _Restores(tmp_path, [_old(tmp_path)])
    disk.run()
    rows = pq.read_table(disk.cache)
    assert rows.num_rows == len(logs_in(disk.old[0]))
    disk.run(now=datetime.fromtimestamp(rows["ctime_ns"][0].as_py() / 1e9, UTC))
    assert pq.read_table(disk.cache).num_rows == 0


def _changed(value: Any) -> Any:
    if isinstance(value, list):
        return [*value, {"epoch": 77, "start_offset": 0}]
    return 1 if value is None else value + 1


@pytest.mark.parametrize("fact", [name for name in SCAN_CACHE_SCHEMA.names if name not in (*_OF_FILE, *_SETTINGS)])
def test_no_wrong_fact_gets_into_a_cluster(fact: str, tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    disk.run()
    kept = pq.read_table(disk.cache)
    rows = kept.to_pylist()
    last = max(range(len(rows)), key=lambda number: str(rows[number]["path"]))
    rows[last][fact] = _changed(rows[last][fact])
    pq.write_table(pa.Table.from_pylist(rows, kept.schema), disk.cache)
    formatted = (disk.new / BOOTSTRAP_SNAPSHOT).read_bytes()
    planned = disk.run()
    assert disk.read_bytes == 0
    with pytest.raises(KidxError, match=r"if a --scan-cache was given, without it|expected a copy") as refused:
        disk.run(planned["plan"])
    assert "no metadata was written" in str(refused.value)
    assert (disk.new / UNFINISHED).exists() and (disk.new / BOOTSTRAP_SNAPSHOT).read_bytes() == formatted


@pytest.mark.parametrize("fact", ["highest_producer_id", "transactional_batches", "epochs"])
def test_no_wrong_fact_of_a_log_that_is_cut_gets_into_a_cluster(fact: str, tmp_path: Path) -> None:
    """With no transaction by the file, the log would end where one is open, and no coordinator would end that one."""
    disk, written = _Restores(tmp_path, [_old(tmp_path)]), Written()
    written.data(None, 2)
    written.data(7, 2)
    written.data(None, 2)
    written.marker(7, aborts=True)
    directory = disk.old[0] / PARTITION
    for path in directory.glob("0*"):
        path.unlink()
    (directory / LEADER_EPOCH_CHECKPOINT).unlink()
    written.write(directory, set())
    [end] = disk.run(until=6)["ends"]
    assert end["end"] == 2
    kept = pq.read_table(disk.cache)
    rows = kept.to_pylist()
    [of_log] = (row for row in rows if row["path"].startswith(f"{directory}/"))
    of_log[fact] = [{"epoch": 77, "start_offset": 0}] if fact == "epochs" else 0
    of_log["transactional_batches"] = 0
    pq.write_table(pa.Table.from_pylist(rows, kept.schema), disk.cache)
    wrong = disk.run(until=6)
    assert [each["end"] for each in wrong["ends"]] == [6]
    with pytest.raises(KidxError, match=f"{fact} is .*if a --scan-cache was given, without it"):
        disk.run(wrong["plan"], until=6)


def _text(path: Path) -> None:
    path.write_text("not a cache")


def _other_parquet(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def _cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _name_of_no_text(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"interval_bytes", b"\xffnterval_bytes"))


@pytest.mark.parametrize("spoil", [_text, _other_parquet, _cut_off, _directory, _pipe, _name_of_no_text])
def test_a_file_of_something_else_is_refused_and_stays(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    disk.run()
    spoil(disk.cache)
    before = contents_of(tmp_path)
    with pytest.raises(UsageError, match=str(disk.cache)):
        disk.run()
    assert contents_of(tmp_path) == before


def test_a_place_that_is_not_there_is_told_before_logs_are_read(tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    disk.cache = tmp_path / "nowhere" / "scans"
    with pytest.raises(UsageError, match="no file can be written there"):
        disk.run()


def test_a_full_disk_costs_no_plan(tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    with mounted(tmp_path / "full", "tmpfs", "tmpfs", "size=4k,nr_inodes=8") as full:
        disk.cache = full / "scans"
        with redirect_stderr(io.StringIO()) as told:
            planned = disk.run()
        assert "the next run reads all logs again" in told.getvalue() and not [*full.iterdir()]
    assert planned == disk.run(cached=False)


def test_replicas_that_disagree_are_read_each_time(tmp_path: Path) -> None:
    """The leader's alone is copied; the other one's producer ids and epochs count, too."""
    disk = _Restores(tmp_path, [_old(tmp_path), _old(tmp_path, 2)])
    second = formatted_log_dir(tmp_path, 2)
    disk.more = [f"2={second}"]
    _change_epoch(max((disk.old[1] / PARTITION).glob(f"*{LOG_SUFFIX}")))
    first = disk.run()
    assert first == disk.run() == disk.run(cached=False) and first["disagreements"]
    kept = {Path(str(path)).parent for path in pq.read_table(disk.cache)["path"].to_pylist()}
    copied = {Path(each["from"]) for each in first["replicas"] if each["from"]}
    assert kept == copied and len(copied) == 3


def test_no_file_is_made_in_a_source_or_a_new_log_dir(tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    for place in (disk.old[0], disk.new):
        disk.cache = place / "scans.parquet"
        with pytest.raises(UsageError, match="nothing else is written"):
            disk.run()
        assert not disk.cache.exists()


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Nothing is written beside it: it may lie in a source."""
    disk = _Restores(tmp_path, [_old(tmp_path)])
    file, disk.cache = tmp_path / "scans", disk.old[0] / "link"
    disk.cache.symlink_to(file)
    disk.run()
    assert disk.cache.is_symlink() and pq.read_table(file).num_rows == len(logs_in(disk.old[0]))
    disk.run()
    assert disk.read_bytes == 0


def test_a_cache_of_another_release_is_written_anew(tmp_path: Path) -> None:
    disk = _Restores(tmp_path, [_old(tmp_path)])
    disk.run()
    kept = pq.read_table(disk.cache)
    [kind] = kept.schema.metadata
    pq.write_table(kept.replace_schema_metadata({kind: b"0"}), disk.cache)
    disk.run()
    assert disk.read_bytes == sum(map(len, logs_in(disk.old[0]).values()))
    assert pq.read_table(disk.cache).equals(kept, check_metadata=True)
