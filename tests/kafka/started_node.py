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

_PARTITIONS: Final = [("orders", number) for number in range(4)] + [("ledger", number) for number in range(2)]
#: A node that finds no controller gives up by itself after a minute.
_DEADLINE_SECONDS: Final = 150
#: How long the log dirs have to stay as they are for a node to be done with them.
_QUIET_SECONDS: Final = 3.0
_EXCEPTION: Final = re.compile(
    r"^(?:Caused by: |Exception in thread \"\S+\" )?((?:[a-z]\w*\.)+)([A-Z]\w*(?:Exception|Error))(?:: (.*))?$"
)
_TRACE: Final = re.compile(r"\s+at |\s*\.\.\. \d+ ")
_OFFLINE: Final = re.compile(r"Stopping serving logs in dir (\S+)")
_UNIQUE: Final = re.compile(r"\.([0-9a-f]{32})-(delete|future|stray)$")


def start_node(disk: Disk, settings: Mapping[str, object], older: str | None = None) -> dict[str, Any]:
    """Start a node on a disk, and stop it once it has done what it does.

    Returns:
        As JSON: `serves`, or `ends` with the exception; `offline` log dirs; `ends`, by partition the log start and end
        that consumers see, or an error; `folders`, by log dir; `errors`, the exceptions that it logs.
    """
    broker = Broker(
        disk.directory / "node",
        {**SETTINGS, **settings, "log.dirs": ",".join(str(disk.directory / name) for name in LOG_DIRS)},
        older=older,
        format_with=None,
    )
    run = broker._run()
    try:
        serves = run.wait_until_started(_DEADLINE_SECONDS)
        offsets = _offsets(broker) if serves else {}
        if serves:
            _wait_until_quiet(disk, run)
            offsets = _offsets(broker)
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
        "errors": _errors(lines, disk),
        "folders": {name: _folders(disk.directory / name) for name in LOG_DIRS},
    }
    if serves:
        found["offsets"] = offsets
    return found


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


def _offsets(broker: Broker) -> dict[str, list[int] | str]:
    consumer, found = consumer_of(broker.bootstrap, "read_uncommitted"), dict[str, list[int] | str]()
    for topic, partition in _PARTITIONS:
        try:
            found[f"{topic}-{partition}"] = list(
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=3.0, cached=False)
            )
        except KafkaException as error:
            found[f"{topic}-{partition}"] = error.args[0].name()
    consumer.close()
    return found


def _errors(lines: list[str], disk: Disk) -> list[str]:
    """The exceptions that are logged, each once, the first first."""
    found: dict[str, None] = {}
    for line in lines:
        match = _EXCEPTION.match(line)
        if match:
            text = f"{match[2]}: {match[3]}" if match[3] else match[2]
            text = text.replace(str(disk.directory), "").replace(str(disk.directory.resolve()), "")
            text = re.sub(r"[0-9a-f]{32}-", "…-", text)
            found[text] = None
    return list(found)
