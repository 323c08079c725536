"""Logs are read two at a time, and what consumers of committed records get is right with and without transactions."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format.checkpoint_files import LOG_DIR_CHECKPOINTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import RemoteOptions, remote_bucket
from kidxlib.log.remote.layout import LOCAL, STORAGE_DIRECTORY, object_name
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.messages.typed_records import FramedMessage
from kidxlib.operations.restore.contents_work import LogToDigest, digest_logs
from kidxlib.operations.restore.record_digest import DIGESTED, RecordDigest
from kidxlib.storage import log_dir as log_dir_module
from tests.conftest import one_in
from tests.faults.processes import kidx
from tests.support.cluster_metadata import topic_id, write_checkpoints
from tests.support.logs.transactions import Written, random_transactions
from tests.support.restored import formatted_log_dir, id_of, killed_log_dir, write_properties
from tests.support.tiered import copied, write_metadata

_OF: Final = TopicIdPartition(topic_id("t"), "t", 0)
_LOGS: Final = [LogToDigest(topic_partition=TopicPartition("t", 0), number=number) for number in range(10)]


def test_no_log_is_begun_after_an_interruption() -> None:
    """What was begun is finished."""
    is_stopped = False
    read = digest_logs(itertools.takewhile(lambda _: not is_stopped, _LOGS))
    numbers = [next(read).rows[0]["contents"]["number"]]
    is_stopped = True
    numbers += [row["contents"]["number"] for done in read for row in done.rows]
    assert sorted(numbers) == [0, 1]


def test_all_logs_are_read() -> None:
    assert sorted(done.rows[0]["contents"]["number"] for done in digest_logs(_LOGS)) == list(range(10))


@pytest.mark.parametrize("has_transactions", [False, True])
def test_no_checkpoint_of_the_log_dir_is_read_for_each_partition(
    has_transactions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an entry for every partition: to read 4,000 small ones took a minute."""
    log_dir, met = killed_log_dir(tmp_path, 1), list[str]()
    content_of = log_dir_module._checkpoint_content

    def reading(path: Path) -> bytes | None:
        met.append(path.name)
        return content_of(path)

    monkeypatch.setattr(log_dir_module, "_checkpoint_content", reading)
    log = LogToDigest(
        topic_partition=TopicPartition("txn-mixed", 0),
        log_dir=log_dir,
        end_offset=10_000,
        has_transactions=has_transactions,
    )
    [done] = digest_logs([log])
    assert done.rows[0]["contents"]["uncommitted"]["records"] > 1_000
    assert not {*met} & {*LOG_DIR_CHECKPOINTS}


def _without_transactions() -> Written:
    written = Written()
    for _ in range(4):
        written.data(None, 3)
    return written


def _with_one(*, aborts: bool | None) -> Written:
    """A transaction begins between records of nobody, and ends so; None: it is open."""
    written = _without_transactions()
    written.data(0, 2)
    written.data(None, 2)
    if aborts is not None:
        written.marker(0, aborts=aborts)
        written.data(None, 1)
    return written


_KINDS: Final = {
    "aborted": _with_one(aborts=True),
    "committed": _with_one(aborts=False),
    "none": _without_transactions(),
    "open": _with_one(aborts=None),
    **{f"random{seed}": random_transactions(random.Random(seed), 30) for seed in range(4)},
}


@pytest.mark.parametrize("ends", [False, True])
def test_committed_records_are_those_of_transactions_that_were_committed(tmp_path: Path, ends: bool) -> None:
    """Also where a log ends earlier: a transaction is not known then by its marker, or not at all."""
    old, new = tmp_path / "old1", formatted_log_dir(tmp_path, 1)
    old.mkdir()
    write_properties(old, 1, "old")
    for name, written in _KINDS.items():
        written.write(old / f"{name}-0", {5})
        (old / f"{name}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_of(name)}\n")
    write_checkpoints(old)
    options: list[str] = []
    if ends:
        partitions = [{"topic": name, "partition": 0, "offset": 14} for name in _KINDS]
        (tmp_path / "until.json").write_text(json.dumps({"partitions": partitions, "version": 1}))
        options = ["--until-offsets", str(tmp_path / "until.json")]
    arguments = ["restore", str(old), "--broker", f"1={new}", "--controller", str(new), "--json", *options]
    applied = kidx(*arguments, "--apply", kidx(*arguments).json["plan"])
    assert applied.json["applied"], applied.json["refused"]
    contents = {each["partition"].removesuffix("-0"): each for each in applied.json["contents"]}
    assert contents.keys() == _KINDS.keys()
    for name, written in _KINDS.items():
        end = contents[name]["end_offset"]
        expected = len([offset for offset in written.fates if offset < end]), len(written.committed(end))
        found = tuple(contents[name][level]["records"] for level in ("uncommitted", "committed"))
        assert found == expected, name


@given(seed=st.integers(0, 2**32), steps=st.integers(4, 40))
@one_in(2)
def test_what_was_committed_is_read_of_a_bucket_and_a_log_dir_that_overlap(
    seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Leaders have copied offsets twice, the log dir has some of them, too, and the log begins amid a segment."""
    rng, root = random.Random(seed), tmp_path_factory.mktemp("site")
    written = random_transactions(rng, steps)
    bounds = sorted({0, rng.randrange(1, steps), rng.randrange(1, steps), rng.randint(1, steps)})
    bucket, messages = root / STORAGE_DIRECTORY, list[FramedMessage]()
    directory = bucket / LOCAL.partition_path(_OF)
    directory.mkdir(parents=True)
    for epoch, (start, end) in enumerate(itertools.pairwise(bounds)):
        first = max(start - rng.randint(0, 3), bounds[epoch - 1]) if epoch else start
        base_offset = written.batches[first][0]
        end_offset = written.batches[end][0] if end < steps else written.next_offset
        epochs = {epoch: written.batches[start][0]} | ({epoch - 1: base_offset} if first < start else {})
        segment_id = topic_id("abcd"[epoch])
        never_committed = random_transactions(rng, rng.randint(0, 3) if end < steps else 0, end_offset)
        content = b"".join(batch for _, batch in [*written.batches[first:end], *never_committed.batches])
        (directory / object_name(base_offset, segment_id, LOG_SUFFIX)).write_bytes(content)
        messages += copied(
            _OF, segment_id, (base_offset, never_committed.next_offset - 1), epochs=dict(sorted(epochs.items()))
        )
    write_metadata(root / "metadata", 0, messages)
    local = rng.randint(1, bounds[-1] - 1) if bounds[-1] > 1 else 1
    log_dir = root / "log-dir"
    log_dir.mkdir()
    local_start = written.batches[min(local, steps - 1)][0]
    written.write(log_dir / "t-0", {local, rng.randint(local, steps)}, since=local)
    whole = remote_bucket(bucket, RemoteOptions("local", (str(root / "metadata"),)))
    assert whole is not None
    log = LogToDigest(
        topic_partition=TopicPartition("t", 0),
        log_dir=log_dir,
        start_offset=rng.randrange(local_start),
        end_offset=written.next_offset,
        topic_id=_OF.topic_id,
        bucket=replace(whole, directories={_OF: directory}),
    )
    [done] = digest_logs([log])
    contents = done.rows[0]["contents"]
    assert not contents["why"]
    uncommitted, committed = sorted(written.fates), written.committed(written.next_offset)
    for level, offsets in (("uncommitted", uncommitted), ("committed", committed)):
        digest = RecordDigest()
        digest.add_rows(_rows([offset for offset in offsets if offset >= log.start_offset]))
        assert (contents[level]["records"], contents[level]["digest"]) == (digest.records, digest.hexdigest())


def _rows(offsets: Sequence[int]) -> pa.RecordBatch:
    """Records as `Written.data` makes them."""
    rows: list[dict[str, Any]] = [
        {"offset": offset, "timestamp": 0, "key": None, "value": b"v", "headers": []} for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, DIGESTED)
