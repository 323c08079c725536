"""What becomes of a node that is started on a disk: whether it serves, how it ends, and what comes of its log dirs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from tests.kafka.reading import consumer_of
from tests.kafka.start_disk import LOG_DIRS, SETTINGS, Disk
from tests.support.kafka.broker import Broker, BrokerRun

#: A node that finds no controller gives up by itself after a minute.
_DEADLINE_SECONDS: Final = 150
#: How long the log dirs have to stay as they are for a node to be done with them.
_QUIET_SECONDS: Final = 3.0
_EXCEPTION: Final = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))(?:: .*)?$")
#: What a node says on its way, or not, as it happens.
_NOISE: Final = {"ClosedChannelException", "CompletionException", "NotControllerException", "TimeoutException"}
#: The log start and end of each partition.
UNDAMAGED: Final = {
    **{f"orders-{number}": [0, 10] for number in range(4)},
    **{f"ledger-{number}": [0, 5] for number in range(2)},
}
#: In place of the offsets of a partition that consumers do not get.
NOT_SERVED: Final = "not served"
_OFFLINE: Final = re.compile(r"Stopping serving logs in dir (\S+)")
_UNIQUE: Final = re.compile(r"\.([0-9a-f]{32})-(delete|future|stray)$")


def start_node(
    disk: Disk, settings: Mapping[str, object], version: str, isolation_level: str = "read_uncommitted"
) -> dict[str, Any]:
    """Start a node on a disk, and stop it once it has done what it does.

    Args:
        isolation_level: of the consumers that ask for offsets; with `read_committed` the log end is the last stable
            offset.

    Returns:
        As JSON: whether it `serves`; of one that does not, `ended_by`, the exceptions; `offline` log dirs; `folders`,
        by log dir those that it has made or renamed, or whose logs have changed, with the bytes of these (None: gone);
        `offsets`, of partitions of which consumers do not get what was there: the log start and end, or
        `NOT_SERVED`.
    """
    broker = Broker(
        disk.directory / "node",
        {**SETTINGS, **settings, "log.dirs": ",".join(str(disk.directory / name) for name in LOG_DIRS)},
        version=version,
        format_with=None,
    )
    before = {name: _folders(disk.directory / name) for name in LOG_DIRS}
    run = broker._run()
    offsets: dict[str, list[int] | str] = {}
    try:
        serves = run.wait_until_started(_DEADLINE_SECONDS)
        if serves:
            _wait_until_quiet(disk, run)
            offsets = _offsets(broker, isolation_level)
            serves = run._process.poll() is None
    finally:
        run._process.terminate()
        try:
            run._process.wait(30)
        finally:
            run.kill()
    lines = run.lines()
    found: dict[str, Any] = {
        "serves": serves,
        "offline": sorted({Path(match[1]).name for match in filter(None, map(_OFFLINE.search, lines))}),
        "folders": {name: _changed(before[name], _folders(disk.directory / name)) for name in LOG_DIRS},
    }
    if serves:
        found["offsets"] = {name: each for name, each in offsets.items() if each != UNDAMAGED[name]}
    else:
        found["ended_by"] = sorted(set(filter(None, map(_exception, lines))) - _NOISE)
    return found


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | None]:
    gone = dict.fromkeys(before.keys() - after.keys())
    return dict(sorted(({name: size for name, size in after.items() if before.get(name) != size} | gone).items()))


def _exception(line: str) -> str | None:
    match = _EXCEPTION.match(line)
    return None if match is None else match[1]


def _wait_until_quiet(disk: Disk, run: BrokerRun) -> None:
    before, since = None, time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS and run._process.poll() is None:
        now = [_folders(disk.directory / name) for name in LOG_DIRS]
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.2)


def _folders(log_dir: Path) -> dict[str, int]:
    """The folders of a log dir, each with the bytes of its logs."""
    if not log_dir.is_dir():
        return {}
    return {
        _UNIQUE.sub(r".…-\2", path.name): sum(log.stat().st_size for log in path.glob("*.log"))
        for path in sorted(log_dir.iterdir())
        if path.is_dir() and not path.name.startswith("__")
    }


def _offsets(broker: Broker, isolation_level: str) -> dict[str, list[int] | str]:
    consumer, found = consumer_of(broker.bootstrap, isolation_level), dict[str, list[int] | str]()
    for name in UNDAMAGED:
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        try:
            found[name] = list(consumer.get_watermark_offsets(partition, timeout=3.0, cached=False))
        except KafkaException:  # which of several errors it is depends on how far the node has come
            found[name] = NOT_SERVED
    consumer.close()
    return found
