"""Where logs and index files stand. Buckets of remote segments as sources: how they are found, and which of their
segments count.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kidxlib
from kidxlib.errors import DamagedLogError, UsageError
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import SkippedEntries, list_source_partitions
from kidxlib.indexing.source import (
    RemoteOptions,
    Source,
    ensure_distinct_directories,
    index_dir_to_write,
    parse_sources,
    segments_directory,
    source_at,
)
from kidxlib.log.remote.layout import LOCAL, MANIFEST_SUFFIX, STORAGE_DIRECTORY, object_name
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.messages.typed_records import FramedMessage
from kidxlib.records.reader import Record
from kidxlib.storage.location import Directory
from tests.conftest import one_in
from tests.support.cluster_metadata import topic_id as _id
from tests.support.logs import encoded
from tests.support.logs.transactions import Written, random_transactions
from tests.support.spark.jobs import kidx_here
from tests.support.tiered import copied, segment, update, write_metadata
from tests.support.tiered_sites import SAMPLE, as_by_aivens_plugin


def test_logs_that_stand_elsewhere_than_their_source_have_no_place() -> None:
    """A source's name means another directory by now: nothing of what is recorded is looked for there."""
    partition, name = TopicPartition("t", 0), segment_file(7, LOG_SUFFIX)
    recorded = {7: f"/logs/a/t-0/{name}"}
    assert segments_directory(Path("/logs/a"), partition, recorded) == Directory("/logs/a", "t-0")
    assert segments_directory(Path("/logs/a/t-0"), partition, recorded) == Directory("/logs/a", "t-0")
    for elsewhere in ("/logs/b", "/logs", "/logs/a/u-0/x"):
        assert segments_directory(Path(elsewhere), partition, recorded) is None


def test_a_directory_is_named_once(tmp_path: Path) -> None:
    """Two names of one directory count twice; so do a log dir and a partition in it, and two of its partitions not."""
    log_dir, link, partition = tmp_path / "log-dir", tmp_path / "link", tmp_path / "log-dir" / "t-0"
    for directory in (partition, log_dir / "t-1", tmp_path / "other" / "t-0"):
        directory.mkdir(parents=True)
    link.symlink_to(log_dir)
    mounted = Path(f"/proc/self/root{log_dir}")  # as of a bind mount: another path, and the same inode
    parse_sources([f"a={partition}", f"b={log_dir}/t-1", f"c={tmp_path}/other"])
    for twice, message in (
        ([f"a={log_dir}", f"c={link}"], f"{log_dir}: given twice, as source a and as source c; name each log dir once"),
        ([f"a={log_dir}", f"c={link}/t-0"], f"{partition}: it is in {log_dir}, which is given, too; leave out one of"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_sources(twice)
    for sources, message in (
        ([source_at(str(log_dir)), source_at(str(link))], f"{log_dir}: given twice; name each log dir once"),
        ([Source("a", log_dir), Source("c", mounted)], f"{mounted}: the same directory as {log_dir}; name each log"),
    ):
        with pytest.raises(UsageError, match=message):
            ensure_distinct_directories(sources)


_PLACE: Final = SAMPLE.bucket.parent
_COUNTS: Final = {"payments-0": 300, "readings-0": 300, "readings-1": 300}
_OF: Final = TopicIdPartition("A" * 22, "t", 0)


def _partitions(place: Path, **said: Any) -> list[str]:
    source = source_at(str(place), remote=RemoteOptions(**said))
    return [each.topic_partition.directory for each in list_source_partitions(source, SkippedEntries())]


@pytest.mark.parametrize("below", ["", STORAGE_DIRECTORY])
def test_a_bucket_is_found_by_its_name(below: str) -> None:
    assert _partitions(_PLACE / below) == list(_COUNTS)
    assert kidxlib.count(_PLACE / below) == sum(_COUNTS.values())


def test_one_of_its_directories_is_a_partition() -> None:
    [directory] = SAMPLE.bucket.glob("readings-1-*")
    assert _partitions(directory) == ["readings-1"]
    assert kidxlib.count(directory) == 300


def test_a_bucket_of_another_name_is_told_by_its_layout(tmp_path: Path) -> None:
    other = shutil.copytree(SAMPLE.bucket, tmp_path / "archive")
    with pytest.raises(UsageError, match="no segment found"):
        kidxlib.count(other)
    assert kidxlib.count(other, layout="local") == sum(_COUNTS.values())
    with pytest.raises(UsageError, match="layout 'other': expected local or aiven"):
        kidxlib.count(other, layout="other")
    with pytest.raises(UsageError, match="no bucket of remote segments, for which --tiered-metadata is"):
        kidxlib.count(other, tiered_metadata=[SAMPLE.log_dir])


def test_metadata_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--tiered-metadata {tmp_path}: no partition of the metadata is there"):
        kidxlib.count(_PLACE, tiered_metadata=[tmp_path])


def _log(start: int, end: int, epoch: int, word: bytes) -> bytes:
    """A batch for each offset, both included."""
    records = [[Record(offset, 1000 + offset, None, word)] for offset in range(start, end + 1)]
    return b"".join(encoded.batch_v2(batch, leader_epoch=epoch) for batch in records)


def _put(bucket: Path, segment_id: str, start: int, log: bytes) -> None:
    directory = bucket / LOCAL.partition_path(_OF)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / object_name(start, segment_id, LOG_SUFFIX)).write_bytes(log)


def _upload(bucket: Path, segment_id: str, start: int, end: int, epoch: int = 0) -> None:
    _put(bucket, segment_id, start, _log(start, end, epoch, segment_id[:1].encode()))


def _words(bucket: Path, log_dir: Path, messages: Sequence[FramedMessage], **asked: Any) -> str:
    """The letters of the segments that records are read from, in the order of offsets."""
    write_metadata(log_dir, 0, messages)
    rows = kidxlib.read(bucket, tiered_metadata=[log_dir], **asked).read_all()
    found: list[tuple[Any, Any]] = list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert found == sorted(dict(found).items())
    return b"".join(value for _, value in found).decode()


@pytest.fixture
def twice(tmp_path: Path) -> tuple[Path, Path, list[FramedMessage]]:
    """A bucket in which two leaders have copied offsets 6 to 9; its log dir, and its metadata."""
    bucket = tmp_path / STORAGE_DIRECTORY
    _upload(bucket, _id("a"), 0, 9)
    _upload(bucket, _id("b"), 6, 15, epoch=1)
    messages = [
        *copied(_OF, _id("a"), (0, 9)),
        *copied(_OF, _id("b"), (6, 15), epochs={1: 6}),
    ]
    return bucket, tmp_path / "log-dir", messages


def test_offsets_that_two_leaders_have_copied_are_read_once(twice: tuple[Path, Path, list[FramedMessage]]) -> None:
    """As consumers get them: from where a later epoch begins on, of its segment. Without metadata it is an error."""
    bucket, log_dir, messages = twice
    assert _words(bucket, log_dir, messages) == "a" * 6 + "b" * 10
    assert _words(bucket, log_dir, messages, offsets=(4, 8)) == "aabb"
    assert _words(bucket, log_dir, messages, times=(1005, 1007)) == "ab"
    assert kidxlib.count(bucket, tiered_metadata=[log_dir]) == 16
    with pytest.raises(
        DamagedLogError, match=r"offsets 6 to 6, and the partition's next log begins at 6: the two overlap"
    ):
        kidxlib.read(bucket).read_all()
    assert _words(bucket, log_dir, messages, isolation="read_committed") == "a" * 6 + "b" * 10


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
@one_in(2)
def test_what_was_committed_is_read_of_segments_that_overlap(
    seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each leader copies a segment that begins before its epoch; the one before had appended what nobody committed."""
    rng, root = random.Random(seed), tmp_path_factory.mktemp("site")
    written = random_transactions(rng, steps)
    starts = [0, *sorted(rng.sample(range(1, steps), min(rng.randint(0, 4), steps - 1)))]
    bucket, messages = root / STORAGE_DIRECTORY, list[FramedMessage]()
    for epoch, (start, end) in enumerate(pairwise([*starts, steps])):
        first = max(start - rng.randint(0, 3), starts[epoch - 1]) if epoch else start
        end_offset = written.batches[end][0] if end < steps else written.next_offset
        tail = random_transactions(rng, rng.randint(0, 3) if end < steps else 0, end_offset)
        log = b"".join(batch for _, batch in [*written.batches[first:end], *tail.batches])
        epochs = {epoch: written.batches[start][0]}
        if first < start:
            epochs = {epoch - 1: written.batches[first][0], **epochs}
        segment_id = _id("abcde"[epoch])
        _put(bucket, segment_id, written.batches[first][0], log)
        offsets = written.batches[first][0], tail.next_offset - 1
        messages += copied(_OF, segment_id, offsets, epochs=epochs)
    write_metadata(root / "log-dir", 0, messages)
    options: dict[str, Any] = {"tiered_metadata": [root / "log-dir"], "columns": ["offset"]}
    committed = kidxlib.read(bucket, isolation="read_committed", **options).read_all()["offset"].to_pylist()
    assert committed == written.committed(written.next_offset)
    uncommitted = kidxlib.read(bucket, **options).read_all()["offset"].to_pylist()
    assert uncommitted == sorted(written.fates)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_segment_that_is_cut_off_before_the_next_one_is_told(
    twice: tuple[Path, Path, list[FramedMessage]], isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Consumers get offsets 0 to 5 of the first segment, which has 0 to 3 and a part of 4; or 0 to 3."""
    bucket, log_dir, messages = twice
    path = bucket / LOCAL.partition_path(_OF) / object_name(0, _id("a"), LOG_SUFFIX)
    end = len(_log(0, 3, 0, b"a"))
    os.truncate(path, end + 1)
    with pytest.raises(DamagedLogError, match=f"byte {end}: "):
        _words(bucket, log_dir, messages, isolation=isolation)
    os.truncate(path, end)
    assert _words(bucket, log_dir, messages, isolation=isolation) == "a" * 4 + "b" * 10
    assert "t-0 4 to 5 (the next log begins at 6)" in caplog.text


def test_a_catalog_does_not_hide_where_a_transaction_goes_on(tmp_path: Path) -> None:
    """It began before what consumers get of its segment, in one that was deleted since, and was aborted."""
    bucket, log_dir, catalog = tmp_path / STORAGE_DIRECTORY, tmp_path / "log-dir", tmp_path / "catalog"
    written = Written()
    for count in (5, 5, 2):
        written.data(0, count)
    written.marker(0, aborts=True)
    written.data(None, 2)
    start = written.batches[1][0]
    _put(bucket, _id("a"), start, b"".join(batch for _, batch in written.batches[1:]))
    messages = [
        *copied(_OF, _id("a"), (start, written.next_offset - 1), epochs={0: start, 1: 10}),
        *copied(_OF, _id("b"), (0, 9)),
        update(_OF, _id("b"), SegmentState.DELETE_SEGMENT_STARTED),
    ]
    write_metadata(log_dir, 0, messages)
    places = ("--catalog", catalog, "--index-dir", tmp_path / "i", "--tiered-metadata", log_dir)
    built = kidx_here("build", bucket, *places)
    assert built.code == 0, built.err
    options: dict[str, Any] = {"tiered_metadata": [log_dir], "columns": ["offset"], "isolation": "read_committed"}
    for known in (None, catalog):
        assert kidxlib.read(bucket, catalog=known, **options).read_all()["offset"].to_pylist() == [13, 14]


def test_a_build_says_which_offsets_are_in_two_segments(
    twice: tuple[Path, Path, list[FramedMessage]], tmp_path: Path
) -> None:
    bucket, log_dir, messages = twice
    write_metadata(log_dir, 0, messages)
    options = ("--index-dir", tmp_path / "index", "--tiered-metadata", log_dir)
    built = kidx_here("build", bucket, *options)
    assert built.code == 0, built.err
    assert "consumers get offsets 0 to 5 of it; its others were copied by a later leader again" in built.err
    asked = ("--topic", "t", "--partition", "0")
    found = kidx_here("seek", bucket, "--tiered-metadata", log_dir, *asked, "--offset", "7", "--json")
    [answer] = found.json["answers"]
    assert answer["segment_base_offset"] == 6
    by_time = kidx_here("seek", bucket, "--tiered-metadata", log_dir, *asked, "--timestamp", "1007")
    assert by_time.code == 2 and "ask for an offset, or kidx export --times" in by_time.err


def test_what_brokers_do_not_read_is_left_out(tmp_path: Path) -> None:
    """What a later leader has copied anew, what was never finished, and what nobody knows. Without metadata they count,
    and one offset that begins two segments is an error.
    """
    bucket, log_dir = tmp_path / STORAGE_DIRECTORY, tmp_path / "log-dir"
    _upload(bucket, _id("a"), 0, 9)
    _upload(bucket, _id("b"), 0, 9)
    _upload(bucket, _id("c"), 10, 19)
    _upload(bucket, _id("d"), 20, 29)
    messages = [
        *copied(_OF, _id("a"), (0, 9)),
        *copied(_OF, _id("b"), (0, 9)),
        *copied(_OF, _id("c"), (10, 19)),
        segment(_OF, _id("d"), (20, 29)),
    ]
    assert _words(bucket, log_dir, messages) == "b" * 10 + "c" * 10
    with pytest.raises(UsageError, match=r"offset 0 begins two segments, .* with --tiered-metadata"):
        kidxlib.count(bucket)
    (bucket / LOCAL.partition_path(_OF) / object_name(0, _id("a"), LOG_SUFFIX)).unlink()
    assert kidxlib.count(bucket) == 30


def test_two_topics_of_one_name(tmp_path: Path) -> None:
    """The metadata says which of them is left; other topics are read without."""
    bucket = Path(shutil.copytree(SAMPLE.bucket, tmp_path / STORAGE_DIRECTORY))
    [directory] = bucket.glob("payments-0-*")
    shutil.copytree(directory, bucket / f"payments-0-{'B' * 22}")
    with pytest.raises(UsageError, match="two topics of this name"):
        kidxlib.count(bucket)
    assert kidxlib.count(bucket, topics="readings") == 600
    assert kidxlib.count(bucket, tiered_metadata=[SAMPLE.log_dir]) == 900


@pytest.fixture
def aiven(tmp_path: Path) -> Path:
    """The sample, as Aiven's plugin would have named it."""
    places = (("readings", 0), ("readings", 1), ("payments", 0))
    as_by_aivens_plugin([each for place in places for each in SAMPLE.segments(*place)], tmp_path / "aiven")
    return tmp_path / "aiven"


def test_aivens_plain_objects_are_read(aiven: Path) -> None:
    expected = kidxlib.read(_PLACE).read_all()
    assert kidxlib.read(aiven, layout="aiven").read_all().equals(expected)
    assert kidxlib.count(aiven, layout="aiven", tiered_metadata=[SAMPLE.log_dir]) == 900


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compression": True}, "its log is compressed"),
        ({"compression": True, "encryption": {}}, "its log is compressed and encrypted"),
        ({"version": "2"}, "a manifest of version 2, expected 1"),
    ],
)
def test_objects_that_aivens_plugin_has_changed_are_refused(aiven: Path, change: dict[str, Any], said: str) -> None:
    manifest = sorted(aiven.rglob(f"*{MANIFEST_SUFFIX}"))[-1]
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with pytest.raises(UsageError, match=said):
        kidxlib.count(aiven, layout="aiven")
    assert kidxlib.count(aiven, layout="aiven", topics="payments") == 300, "others are read"


def test_a_build_makes_the_indexes_that_the_broker_has_made(tmp_path: Path) -> None:
    """Its catalog knows the objects by their paths, and the second build reads nothing; what is deleted is gone."""
    site, catalog, index = SAMPLE.copy(tmp_path), tmp_path / "catalog", tmp_path / "index"
    source = ("--source", f"it={site.bucket}", "--layout", "local", "--catalog", catalog, "--index-dir", index)
    first = kidx_here("build", *source, "--interval-bytes", "1024", "--json")
    assert first.code == 0, first.err
    for place in (("readings", 0), ("readings", 1), ("payments", 0)):
        for each in site.segments(*place):
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                made = index / f"{place[0]}-{place[1]}" / f"{each.offsets[0]:020d}{suffix}"
                theirs = each.object(suffix)
                assert made.exists() == theirs.exists()
                assert not made.exists() or made.read_bytes() == theirs.read_bytes()
    audited = kidx_here("verify", *source[:6], "--interval-bytes", "1024")
    assert audited.code == 0, audited.out
    assert "next start" not in audited.out, "no broker starts with a bucket"
    second = kidx_here("build", *source, "--interval-bytes", "1024", "--json")
    assert (second.json["unchanged"], second.json["gone"]) == (17, 0)
    site.segments("readings")[0].remove()
    third = kidx_here("build", *source, "--interval-bytes", "1024", "--json")
    assert (third.json["unchanged"], third.json["gone"]) == (16, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build", _PLACE, "--in-place"), "in a bucket of tiered storage, where a broker's plugin alone writes"),
        (("verify", _PLACE), "in a bucket of tiered storage, whose own indexes kidx verify-tiered audits"),
        (("seek", "--catalog", "x", "--layout", "local"), "--layout: the catalog knows what its sources are"),
    ],
)
def test_what_a_bucket_is_not_for(words: tuple[object, ...], said: str) -> None:
    refused = kidx_here(*map(str, words))
    assert refused.code == 2
    assert said in refused.err


@pytest.mark.parametrize("inside", ["", "orders-0", "b1/orders-0"])
def test_a_log_dir_is_no_index_directory(inside: str, tmp_path: Path) -> None:
    """Its index files would be replaced, without its lock: a partition, a log dir, and log dirs by source."""
    index_dir = tmp_path / "indexes"
    directory = index_dir / inside
    directory.mkdir(parents=True)
    (directory / segment_file(0, OFFSET_INDEX_SUFFIX)).touch()
    assert index_dir_to_write("--index-dir", str(index_dir)) == index_dir
    (directory / segment_file(0, LOG_SUFFIX)).touch()
    with pytest.raises(UsageError, match=f"it is a log dir, {directory}/0+.log is there"):
        index_dir_to_write("--index-dir", str(index_dir))
