"""What an audit of tiered storage tells of bytes on both sides, of copies that are behind, and of other settings."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from tests.support import cluster_metadata as made_up
from tests.support.audits import verified_tiered
from tests.support.tiered_sites import SAMPLE, RemoteSegment, Site

_TOPIC: Final = "payments"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return SAMPLE.copy(tmp_path)


def _numbers(site: Site, *options: object) -> dict[str, Any]:
    where = (site.bucket, "--tiered-metadata", site.log_dir)
    found: dict[str, Any] = verified_tiered(*where, *options, code=0)["numbers"]
    return found


def _last(site: Site) -> RemoteSegment:
    return site.segments(_TOPIC)[-1]


def _write_log(directory: Path, topic_id: str, segments: dict[int, tuple[int, int | None, int]]) -> None:
    """A partition in a log dir.

    Args:
        segments: by base offset the size of the log, the largest timestamp that the time index has, if there is one,
            and when the log was written; in ms since the epoch.
    """
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for base_offset, (size, largest, written_ms) in segments.items():
        log = directory / segment_file(base_offset, LOG_SUFFIX)
        log.write_bytes(bytes(size))
        os.utime(log, ns=(written_ms * 10**6, written_ms * 10**6))
        if largest is not None:
            entry = np.array([(largest, 0)], layouts.TIME_INDEX_ENTRY)
            entry.tofile(directory / segment_file(base_offset, TIME_INDEX_SUFFIX))


def test_bytes_of_topics_on_both_sides_and_what_is_to_be_copied(site: Site) -> None:
    """The last local segment is the active one, which is never copied; what is copied already is not waited for."""
    last, at_ms = _last(site), site.last_ms()
    end = last.offsets[1] + 1
    logs = {
        last.offsets[0]: (100, 5, at_ms),
        end: (200, at_ms - 7_000, at_ms - 6_000),
        end + 10: (300, None, at_ms),
        end + 20: (50, None, at_ms + 60_000),
    }
    _write_log(site.log_dir / f"{_TOPIC}-0", last.partition.topic_id, logs)
    numbers = _numbers(site)
    segments = site.segments(_TOPIC)
    [found] = [each for each in numbers["topics"] if each["topic"] == _TOPIC]
    assert found == {
        "topic": _TOPIC,
        "topic_id": last.partition.topic_id,
        "segments": len(segments),
        "log_bytes": sum(each.row["log_bytes"] for each in segments),
        "object_bytes": sum(path.stat().st_size for each in segments for path in each.objects().values()),
        "partitions": 1,
        "partitions_with_log": 1,
        "local_bytes": 650,
        "copy_lag_bytes": 500,
    }
    assert numbers["as_of_ms"] == at_ms + 60_000
    assert numbers["copy_lags"] == [
        {
            "topic": _TOPIC,
            "partition": 0,
            "topic_id": last.partition.topic_id,
            "segments": 2,
            "bytes": 500,
            "first_offset": end,
            "since_ms": at_ms - 7_000,
            "waiting_ms": 67_000,
        }
    ]


_MINUTE_MS: Final = 60_000


@pytest.mark.parametrize(
    ("largest_ms", "configs", "options", "stalls"),
    [
        (0, {}, (), True),
        (10**12, {}, (), True),  # a time yet to come
        (0, {}, ("--stuck-after", "2h"), False),
        (0, {"remote.log.copy.disable": "true"}, (), False),
        (0, {"remote.storage.enable": "false"}, (), False),
        (0, {"remote.copy.lag.ms": str(60 * _MINUTE_MS)}, (), False),
        (0, {"remote.copy.lag.ms": str(10 * _MINUTE_MS)}, (), True),
        (0, {"remote.copy.lag.bytes": "1000"}, (), False),
    ],
)
def test_copying_that_stands_still(
    site: Site, largest_ms: int, configs: dict[str, str], options: tuple[str, ...], stalls: bool
) -> None:
    """Full segments wait for longer than the topic and --stuck-after allow, and nothing was copied meanwhile."""
    last, at_ms = _last(site), site.last_ms()
    end, topic_id = last.offsets[1] + 1, last.partition.topic_id
    written_ms = at_ms + 1
    logs = {end: (200, written_ms + largest_ms, written_ms), end + 10: (300, None, at_ms + 90 * _MINUTE_MS)}
    _write_log(site.log_dir / f"{_TOPIC}-0", topic_id, logs)
    changes = [made_up.topic(_TOPIC, topic_id), made_up.config(_TOPIC, "remote.storage.enable", "true")]
    changes += [made_up.config(_TOPIC, name, value) for name, value in configs.items()]
    directory = made_up.put_metadata(site.log_dir.parent, changes)
    where = (site.bucket, "--tiered-metadata", site.log_dir, "--cluster-metadata", directory)
    found = verified_tiered(*where, *options, code=3 if stalls else 0)
    on_copying = [each for each in found["findings"] if each["reason"] == "stalled"]
    assert bool(on_copying) == stalls
    if stalls:
        [lag], [finding] = found["numbers"]["copy_lags"], on_copying
        assert lag["waiting_ms"] == 90 * _MINUTE_MS - 1
        assert (finding["partition"], finding["start_offset"], finding["verdict"]) == (0, end, "broken")
        assert "200 bytes" in finding["detail"] and "allowed: " in finding["detail"]


def test_nobody_knows_what_is_to_be_copied_of_a_partition_that_is_nowhere(site: Site) -> None:
    """No log dir has it, or one has that of a topic that was made again under its name."""
    last = _last(site)
    _write_log(site.log_dir / f"{_TOPIC}-0", "A" * 22, {last.offsets[1] + 1: (9, 1, 1), 10**6: (9, None, 1)})
    numbers = _numbers(site)
    assert {(each["local_bytes"], each["copy_lag_bytes"]) for each in numbers["topics"]} == {(None, None)}
    assert numbers["copy_lags"] == []


def test_of_two_copies_the_one_that_goes_further_says_what_is_to_be_copied(site: Site, tmp_path: Path) -> None:
    last, at_ms = _last(site), site.last_ms()
    end = last.offsets[1] + 1
    _write_log(site.log_dir / f"{_TOPIC}-0", last.partition.topic_id, {end: (10, None, at_ms)})
    logs = {end: (10, 5, at_ms), end + 5: (20, None, at_ms)}
    _write_log(tmp_path / "other" / f"{_TOPIC}-0", last.partition.topic_id, logs)
    numbers = _numbers(site, "--tiered-metadata", tmp_path / "other")
    [found] = [each for each in numbers["topics"] if each["topic"] == _TOPIC]
    assert (found["local_bytes"], found["copy_lag_bytes"]) == (40, 10)


def _goes(site: Site, *settings: str, now_ms: int, kafka: str = "4.4") -> dict[str, tuple[int, int]]:
    """Segments and bytes that go on each side, with what goes by the settings that the topic has."""
    options = [text for setting in settings for text in ("--what-if", setting)]
    [found] = [
        each
        for each in _numbers(site, *options, "--now", now_ms, "--kafka-version", kafka)["what_if"]
        if each["topic"] == _TOPIC
    ]
    return {
        side: tuple(found["due"][side][name] + found["freed"][side][name] for name in ("segments", "log_bytes"))
        for side in ("bucket", "log_dirs")
    }


def _as_old(segments: list[RemoteSegment], timestamp: int) -> list[int]:
    """Sizes of the first segments with nothing newer than a time."""
    old = itertools.takewhile(lambda each: each.row["max_timestamp_ms"] <= timestamp, segments)
    return [each.row["log_bytes"] for each in old]


def test_what_other_settings_would_free(site: Site) -> None:
    """In the bucket the first segments go; in log dirs only what is copied, and what the bucket does not begin with
    any more. The topic itself has `local.retention.ms=1000`, and no other limit that is reached.
    """
    segments = site.segments(_TOPIC)
    last, sizes = segments[-1], [each.row["log_bytes"] for each in segments]
    now_ms, end = last.row["max_timestamp_ms"] + 100, last.offsets[1] + 1
    times = sorted({each.row["max_timestamp_ms"] for each in segments})
    logs = {each.offsets[0]: (each.row["log_bytes"], each.row["max_timestamp_ms"], now_ms) for each in segments[1:]}
    logs |= {end: (70, now_ms - 10_000_000, now_ms), end + 9: (5, None, now_ms)}
    _write_log(site.log_dir / f"{_TOPIC}-0", last.partition.topic_id, logs)
    stays = "local.retention.ms=-1"

    # What is as old as the limit goes in the bucket, to the millisecond, and with it what is before its start.
    goes, limit = _as_old(segments, times[1]), now_ms - times[1]
    assert 1 < len(goes) < len(segments)
    found = _goes(site, f"retention.ms={limit}", stays, now_ms=now_ms)
    assert found == {"bucket": (len(goes), sum(goes)), "log_dirs": (len(goes) - 1, sum(goes[1:]))}
    less = _as_old(segments, times[0])
    assert _goes(site, f"retention.ms={limit + 1}", stays, now_ms=now_ms)["bucket"] == (len(less), sum(less))

    # In log dirs only what is older goes, and nothing that is not copied, however old.
    nothing, all_copied = {"bucket": (0, 0)}, {"log_dirs": (len(segments) - 1, sum(sizes[1:]))}
    found = _goes(site, f"local.retention.ms={limit}", now_ms=now_ms)
    assert found == nothing | {"log_dirs": (len(less[1:]), sum(less[1:]))}
    assert _goes(site, "local.retention.ms=0", now_ms=now_ms) == nothing | all_copied

    # What is not copied counts, too: it has 75 bytes.
    whole = sum(sizes) + 75
    assert _goes(site, f"retention.bytes={whole - sizes[0]}", now_ms=now_ms)["bucket"] == (1, sizes[0])
    assert _goes(site, f"retention.bytes={whole - sizes[0] + 1}", now_ms=now_ms)["bucket"] == (0, 0)
    found = _goes(site, "retention.bytes=0", "local.retention.bytes=-2", stays, now_ms=now_ms)
    assert found == {"bucket": (len(segments), sum(sizes))} | all_copied


def test_what_begins_at_the_last_copied_offset_counts_as_not_copied_up_to_4_3(site: Site) -> None:
    """As a segment of a single offset does that is on both sides (`UnifiedLog.onlyLocalLogSegmentsSize`)."""
    segments = site.segments(_TOPIC)
    last, sizes = segments[-1], [each.row["log_bytes"] for each in segments]
    now_ms, end = last.row["max_timestamp_ms"] + 100, last.offsets[1] + 1
    logs = {end - 1: (70, now_ms, now_ms), end: (30, now_ms, now_ms), end + 9: (5, None, now_ms)}
    _write_log(site.log_dir / f"{_TOPIC}-0", last.partition.topic_id, logs)
    for kafka, not_copied in (("4.3", 105), ("4.4", 35)):
        limit = sum(sizes[1:]) + not_copied
        for more, goes in ((0, (1, sizes[0])), (1, (0, 0))):
            found = _goes(site, f"retention.bytes={limit + more}", now_ms=now_ms, kafka=kafka)
            assert found["bucket"] == goes, (kafka, more)


@pytest.mark.parametrize("text", ["retention.ms", "retention.ms=", "retention.ms=-2", "cleanup.policy=1", "x=1"])
def test_settings_that_do_not_exist_are_refused(text: str) -> None:
    where = ["verify-tiered", str(SAMPLE.bucket), "--tiered-metadata", str(SAMPLE.log_dir)]
    with pytest.raises(UsageError, match=r"--what-if .*: expected NAME=NUMBER of retention\.ms"):
        CliRunner().invoke(kidx, [*where, "--what-if", text], standalone_mode=False, catch_exceptions=False)
