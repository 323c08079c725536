"""`kidx verify-tiered` on what a broker has uploaded, and what consumers get of it: sound, damaged and mended."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import kidxlib
from kidxlib.audit.tiered.remote_finding import AuditLevel
from kidxlib.cli.main import kidx
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.format.topic_partition import REMOTE_INDEX_CACHE
from kidxlib.indexing.listing import SkippedEntries, list_source_partitions
from kidxlib.indexing.source import RemoteOptions, source_at
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.lookup.searched_partitions import log_in_bucket
from kidxlib.lookup.seeker import Seeker
from kidxlib.messages.remote_log_metadata import SegmentState
from tests.kafka.reading import Seen, read, read_all, read_until_error, wait_until_read
from tests.support import cluster_metadata as made_up
from tests.support.audits import repaired, verified_tiered
from tests.support.kafka.admin import set_config, wait_until
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker, BrokerRun
from tests.support.kafka.tiered import (
    METADATA_TOPIC,
    ONE_PARTITION_EACH,
    PARTITIONS,
    PLAIN,
    TRANSACTIONS,
    fill,
    site_of,
    tiered_broker,
    tiered_twin,
    write_briefly_kept,
)
from tests.support.tiered_sites import Site, all_as_last, damages

_DAMAGES: Final = damages(PLAIN, TRANSACTIONS)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A stopped broker, what it has uploaded, and what consumers have got of that."""

    broker: Broker
    site: Site
    seen: Seen


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> _Filled:
    directory = tmp_path_factory.mktemp("tiered")
    broker = tiered_broker(directory / "broker", ONE_PARTITION_EACH, broker_version)
    with broker.running():
        fill(broker)
        seen = read_all(broker.bootstrap, PARTITIONS)
    return _Filled(broker, site_of(broker, directory), seen)


def _audited(site: Site, level: str, *options: str, code: int = 0) -> dict[str, Any]:
    where = (site.bucket, "--tiered-metadata", site.log_dir, "--level", level)
    return verified_tiered(*where, *options, code=code)


@pytest.mark.parametrize("level", list(AuditLevel))
def test_nothing_is_found_in_a_sound_bucket(filled: _Filled, level: AuditLevel) -> None:
    found = _audited(filled.site, level)
    assert found["findings"] == []
    segments = [each for topic, partition in PARTITIONS for each in filled.site.segments(topic, partition)]
    objects = [path for each in segments for path in each.objects().values()]
    assert found["segments"]["COPY_SEGMENT_FINISHED"]["segments"] == len(segments) > 6
    assert found["objects"] == {"objects": len(objects), "bytes": sum(path.stat().st_size for path in objects)}
    assert found["metadata"]["partitions"] == [0, 1]
    assert found["metadata"]["partitions_of_topic"] in (2, None)  # by chance another number fits, too
    assert (found["not_judged"], found["other_files"]) == (0, 0)


@pytest.mark.parametrize("name", _DAMAGES)
def test_each_damage_has_its_finding_and_no_other(filled: _Filled, tmp_path: Path, name: str) -> None:
    damage, site = _DAMAGES[name], filled.site.copy(tmp_path)
    damage.plant(site)
    where = (str(site.bucket), "--tiered-metadata", str(site.log_dir), "--level", damage.level)
    result = CliRunner().invoke(kidx, ["verify-tiered", *where, "--json"], standalone_mode=False)
    [finding] = _audited(site, damage.level, code=result.return_value)["findings"]
    assert (finding["file"], finding["reason"]) == damage.found
    assert result.return_value == (3 if finding["verdict"] == "broken" else 0)
    assert finding["consequence"] and finding["what_to_do"]


@pytest.mark.parametrize("with_metadata", [False, True])
def test_a_bucket_is_read_as_consumers_read_the_broker(filled: _Filled, with_metadata: bool) -> None:
    site, seen = filled.site, filled.seen
    metadata = [str(site.log_dir)] if with_metadata else []
    for isolation, of_broker in (("read_uncommitted", seen.uncommitted), ("read_committed", seen.committed)):
        found: dict[tuple[str, int], list[Any]] = {place: [] for place in PARTITIONS}
        for row in kidxlib.read(site.bucket, isolation=isolation, tiered_metadata=metadata).read_all().to_pylist():
            record = row["offset"], row["timestamp"].timestamp() * 1000, row["key"], row["value"]
            found[row["topic"], row["partition"]].append(record)
        assert found == {
            place: [(each.offset, each.timestamp[1], each.key, each.value) for each in partition.records]
            for place, partition in of_broker.items()
        }
    source = source_at(str(site.bucket), remote=RemoteOptions(metadata=tuple(metadata)))
    for directory in list_source_partitions(source, SkippedEntries()):
        topic, partition = directory.topic_partition.topic, directory.topic_partition.partition
        offsets = seen.offsets[topic, partition]
        answers = Seeker(log_in_bucket(directory, None, by_time=True)).timestamps(list(offsets))
        asked = answers.select(["found", "offset", "file_error"]).to_pylist()
        assert [row["offset"] if row["found"] else -1 for row in asked] == list(offsets.values())
        assert not any(row["file_error"] for row in asked)


def test_what_retention_should_have_deleted(filled: _Filled) -> None:
    """The topics keep records for ten years."""
    assert _audited(filled.site, "listing", "--now", "2034-01-01T00:00Z")["findings"] == []
    found = _audited(filled.site, "listing", "--now", "2050-01-01T00:00Z")["findings"]
    segments = sum(len(filled.site.segments(*place)) for place in PARTITIONS)
    assert Counter((each["file"], each["reason"]) for each in found) == {("metadata", "retention-overdue"): segments}


def test_objects_newer_than_the_metadata_are_not_judged(filled: _Filled, tmp_path: Path) -> None:
    """Metadata that was copied before the last segments were uploaded says nothing of them."""
    site = filled.site.copy(tmp_path)
    old = filled.site.segments(PLAIN)[0]
    old.site.copy(tmp_path / "x")
    for path in old.objects().values():
        new = site.bucket / path.parent.name / path.name.replace(old.id, "n" * 21 + "A")
        shutil.copyfile(path, new)  # of now
    found = _audited(site, "listing")
    assert (found["findings"], found["not_judged"]) == ([], len(old.objects()))


def test_the_silent_wrong_answer_is_found_and_mended(filled: _Filled, tmp_path: Path) -> None:
    """Without a transaction index consumers get what was aborted, and no broker says so. With the one that is made anew
    of the log they get what they got before.
    """
    broker, seen = filled.broker, filled.seen
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    segment = next(each for each in site.segments(TRANSACTIONS) if TRANSACTION_INDEX_SUFFIX in each.objects())
    content = segment.object(TRANSACTION_INDEX_SUFFIX).read_bytes()
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    damaged = _seen(broker)
    place = (TRANSACTIONS, 0)
    assert len(damaged.committed[place].records) > len(seen.committed[place].records)
    assert damaged.uncommitted == seen.uncommitted
    found = _audited(site, "listing", code=3)["findings"]
    assert [each["object"] for each in found] == [str(segment.object(TRANSACTION_INDEX_SUFFIX))], found
    lost = segment.object(TRANSACTION_INDEX_SUFFIX)
    assert _mend(site, tmp_path, "listing") == {lost.name: "put"}
    assert (lost.read_bytes(), lost.stat().st_mode) == (content, segment.object(LOG_SUFFIX).stat().st_mode)
    assert _seen(broker).differences(seen) == []


def test_consumers_stop_at_a_segment_that_lacks_an_object(filled: _Filled, tmp_path: Path) -> None:
    """As the findings say: without its log, and without one of the two indexes that every segment has. These two can be
    made anew of its log, with the bytes that they had, and that log cannot.
    """
    broker = filled.broker
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    lost: dict[Path, bytes] = {}
    stops: dict[tuple[str, int], int] = {}
    for place, suffix in zip(PARTITIONS, (LOG_SUFFIX, TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX), strict=True):
        segment = site.segments(*place)[1]
        path = segment.object(suffix)
        lost[path] = path.read_bytes()
        path.unlink()
        stops[place] = segment.offsets[0]
    shutil.rmtree(broker.log_dir / REMOTE_INDEX_CACHE, ignore_errors=True)
    with _running(broker):
        stopped = {place: read_until_error(broker.bootstrap, *place) for place in PARTITIONS}
    found = _audited(site, "listing", code=3)["findings"]
    [(log, content)] = [(path, content) for path, content in lost.items() if path.suffix == LOG_SUFFIX]
    log.write_bytes(content)
    mended = _mend(site, tmp_path, "listing")
    assert stopped == stops
    assert {each["object"] for each in found} == set(map(str, lost)), found
    assert mended == {path.name: "put" for path in lost if path != log}
    assert {path: path.read_bytes() for path in lost} == lost


def test_what_consumers_get_of_broken_indexes_and_of_mended_ones(filled: _Filled, tmp_path: Path) -> None:
    """An index that brokers refuse, a time index that passes records by, and a transaction index of another producer:
    each gives a wrong answer or none, and after the repair all answers are those of before.
    """
    broker = filled.broker
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    aborted = next(each for each in site.segments(TRANSACTIONS) if TRANSACTION_INDEX_SUFFIX in each.objects())
    refused = site.segments(PLAIN, 0)[1]
    # On a busy machine a broker rolls segments by time: some have hardly an entry that could lead elsewhere.
    passed_by = max(site.segments(PLAIN, 1), key=lambda each: each.object(TIME_INDEX_SUFFIX).stat().st_size)
    spoilt = [
        refused.object(OFFSET_INDEX_SUFFIX),
        passed_by.object(TIME_INDEX_SUFFIX),
        aborted.object(TRANSACTION_INDEX_SUFFIX),
    ]
    before = {path: path.read_bytes() for path in spoilt}
    spoilt[0].write_bytes(before[spoilt[0]][:-3])
    passed_by.edit(TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY, all_as_last)
    aborted.edit(TRANSACTION_INDEX_SUFFIX, layouts.ABORTED_TRANSACTION, _of_another_producer)
    shutil.rmtree(broker.log_dir / REMOTE_INDEX_CACHE, ignore_errors=True)
    with _running(broker):
        stopped = read_until_error(broker.bootstrap, PLAIN, 0)
        others = read_all(broker.bootstrap, PARTITIONS[1:])
    mended = _mend(site, tmp_path, "full")
    assert stopped == refused.offsets[0]
    assert others.offsets[PLAIN, 1] != filled.seen.offsets[PLAIN, 1]
    assert len(others.committed[TRANSACTIONS, 0].records) > len(filled.seen.committed[TRANSACTIONS, 0].records)
    assert mended == {path.name: "put" for path in spoilt}
    assert {path: path.read_bytes() for path in spoilt} == before
    assert _seen(broker).differences(filled.seen) == []


def _of_another_producer(entries: NDArray[Any]) -> None:
    entries["producer_id"] += 1


def test_what_a_broker_makes_of_wrong_metadata(filled: _Filled, tmp_path: Path) -> None:
    """As the findings say: it asks for no transaction index where there should be none, and consumers stop at a gap."""
    broker = tiered_twin(filled.broker, tmp_path / "twin")
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    aborted = next(each for each in site.segments(TRANSACTIONS) if TRANSACTION_INDEX_SUFFIX in each.objects())
    lost = site.segments(PLAIN)[1]
    aborted.change(txnIndexEmpty=True)
    states = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
    lost.update(*states, at_ms=site.last_ms())
    for path in broker.log_dir.glob(f"{METADATA_TOPIC}-*/*index"):
        path.unlink()  # of logs that were rewritten
    found = _audited(site, "listing", code=3)["findings"]
    assert {(each["segment_id"], each["reason"]) for each in found} == {
        (aborted.id, "never-asked-for"),
        (lost.id, "left-after-delete"),
        (site.segments(PLAIN)[2].id, "gap"),
    }
    shutil.rmtree(broker.log_dir / REMOTE_INDEX_CACHE, ignore_errors=True)
    place = (TRANSACTIONS, 0)
    with _running(broker):
        committed = read(broker.bootstrap, [place], "read_committed")[place]
        assert len(committed.records) > len(filled.seen.committed[place].records)
        assert read_until_error(broker.bootstrap, PLAIN, 0) == lost.offsets[0]


def test_nothing_is_found_while_a_broker_works(filled: _Filled, tmp_path: Path) -> None:
    """A running broker copies segments of another topic as they are written, and deletes them as their time is over,
    and is audited again and again, until it has deleted some.
    """
    broker = tiered_twin(filled.broker, tmp_path / "twin")  # others' broker has no such topic
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    deadline = time.monotonic() + DEADLINE_SECONDS
    with broker.running():
        for number, _ in enumerate(write_briefly_kept(broker, "briefly-kept"), 1):
            for level in AuditLevel:
                found = _audited(site, level)
                assert found["findings"] == []
            assert time.monotonic() < deadline, "it deletes nothing"
            if number >= 8 and found["segments"]["DELETE_SEGMENT_FINISHED"]["segments"] > 2:
                break


def test_what_other_settings_would_free_a_broker_deletes(filled: _Filled, tmp_path: Path) -> None:
    """A topic is given a limit that its first segments have reached: these and no others go, as the audit has said."""
    broker = tiered_twin(filled.broker, tmp_path / "twin")
    site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
    segments = [each for partition in range(2) for each in site.segments(PLAIN, partition)]
    ends = sorted({each.row["max_timestamp_ms"] for each in segments})
    # Between two ends that lie far apart, so that the clock does not come to the second one.
    apart, due = max((later - end, end) for end, later in itertools.pairwise(ends))
    with _running(broker):
        now_ms = time.time_ns() // 10**6
        limit = now_ms - due
        numbers = _audited(site, "listing", "--now", str(now_ms), "--what-if", f"retention.ms={limit}")["numbers"]
        [found] = [each for each in numbers["what_if"] if each["topic"] == PLAIN]
        set_config(broker.bootstrap, PLAIN, {"retention.ms": limit})
        expected = {each.id for each in segments if each.row["max_timestamp_ms"] <= due}
        wait_until(lambda: len(_deleted(site)) >= len(expected), "it does not delete them")
    assert _deleted(site) == expected
    sizes = {each.id: each.row["log_bytes"] for each in segments}
    assert 0 < len(expected) < len(segments) and apart > 20_000
    assert found["due"]["bucket"]["segments"] == 0
    assert found["freed"]["bucket"] == {"segments": len(expected), "log_bytes": sum(sizes[each] for each in expected)}
    assert numbers["copy_lags"] == []
    assert {each["copy_lag_bytes"] for each in numbers["topics"]} == {0}


def _deleted(site: Site) -> set[str]:
    found = [each for partition in range(2) for each in site.segments(PLAIN, partition)]
    return {each.id for each in found if each.row["state"] == SegmentState.DELETE_SEGMENT_FINISHED.name}


@contextlib.contextmanager
def _running(broker: Broker) -> Iterator[BrokerRun]:
    """A running broker that knows its remote segments."""
    with broker.running() as run:
        wait_until_read(broker.bootstrap, PARTITIONS)
        yield run


def _seen(broker: Broker) -> Seen:
    """What consumers get once the broker has nothing of indexes that it has fetched before."""
    shutil.rmtree(broker.log_dir / REMOTE_INDEX_CACHE, ignore_errors=True)
    with _running(broker) as run:
        seen = read_all(broker.bootstrap, PARTITIONS)
    assert not [line for line in run.lines() if "ERROR" in line and "RemoteIndexCache" in line]
    return seen


def _mend(site: Site, directory: Path, level: str) -> dict[str, str]:
    """Repair a bucket; what became of each object by its name."""
    where = (site.bucket, "--tiered-metadata", site.log_dir, "--index-dir", directory / "mirror")
    found = repaired(*where, "--level", level, "--apply", code=0)
    return {each["name"]: each["outcome"] for each in found["objects"]}


def test_metadata_that_goes_before_the_data(filled: _Filled, tmp_path: Path) -> None:
    """What the cluster says of its topics is made up here."""
    ids = {topic: filled.site.segments(topic)[0].partition.topic_id for topic in (PLAIN, TRANSACTIONS)}
    changes = [made_up.topic(name, topic_id) for name, topic_id in ids.items()]
    changes += [
        made_up.topic(METADATA_TOPIC, made_up.topic_id("m")),
        made_up.config(METADATA_TOPIC, "retention.ms", "5"),
    ]
    changes += [made_up.config(PLAIN, "retention.ms", "-1"), made_up.config(TRANSACTIONS, "retention.ms", "4")]
    directory = made_up.write_copy(
        tmp_path / "__cluster_metadata-0", {0: made_up.leader_change(0, [1]) + made_up.data(1, changes)}
    )
    found = _audited(filled.site, "listing", "--cluster-metadata", str(directory), code=3)["findings"]
    reasons = Counter((each["topic"], each["reason"]) for each in found)
    assert reasons.pop((PLAIN, "metadata-expires-first")) == 1
    assert {reason for _, reason in reasons} == {"retention-overdue"}
