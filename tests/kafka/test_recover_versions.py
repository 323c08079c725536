"""Killed brokers of older versions, each started alone and after `kidx recover`: the same logs, records and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Say
from tests.faults.processes import kidx
from tests.kafka.crashed import Crashed, killed_broker, started
from tests.support.kafka.jars import OLDER, with_older_kafkas


@with_older_kafkas
@pytest.mark.parametrize("version", OLDER)
def test_an_older_broker_starts_as_by_itself(version: str, tmp_path: Path, say: Say) -> None:
    """The version's own disk, and its own start: it recovers what is left to it, or nothing, and all else is equal."""
    crashed = Crashed(killed_broker(tmp_path / "broker", version), tmp_path / "crashed")
    assert sum(crashed.alone.recovered.values()) > 3 * len(crashed.alone.recovered)

    checkpoint = crashed.copy()
    ended = kidx("recover", *checkpoint.log_dirs, "--apply", "--json")
    assert ended.code == 0 and ended.json["start_bytes_now"] < ended.json["start_bytes"] / 3, ended
    found = started(checkpoint)
    assert found.recovered == dict.fromkeys(crashed.alone.recovered, 1) and not found.skipped
    found.assert_same(crashed.alone)

    marker = crashed.copy()
    ended = kidx("recover", *marker.log_dirs, "--apply", "--level", "marker")
    assert ended.code == 0, ended
    found = started(marker)
    assert found.recovered == {} and found.skipped == len(marker.log_dirs)
    found.assert_same(crashed.alone)
    say(
        f"Kafka {version}: {sum(crashed.alone.recovered.values())} segments of {len(crashed.alone.recovered)} "
        f"partitions recovered alone; {len(found.files)} files equal at both levels"
    )
