"""One question, looked at by itself: what is wrong with it, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from kidxlib.format.topic_partition import PARTITION_MAX

#: What a question has.
COLUMNS: Final = ("topic", "partition", "offset", "timestamp")

Row: TypeAlias = Mapping[str, str | None]
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
#: Narrower than what an option takes: with these alone a file means the same to every reader of it.
_MOMENT: Final = re.compile(
    r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-]([0-9]{2}):[0-9]{2})"
)
_ZONE_HOURS_MAX: Final = 18  # as in Java, and so in Kafka's own tools
_A_TIME: Final = "ISO 8601 with a zone (2026-11-20T10:00Z) or milliseconds since the epoch"


def why_wrong(row: Row) -> str | None:
    """What is wrong with a question; None where nothing is. Spaces around a value do not count."""
    values = {name: (row.get(name) or "").strip(" ") for name in COLUMNS}
    topic, partition, offset, timestamp = (values[name] for name in COLUMNS)
    of = f"{topic}-{partition}, " if partition.isascii() and partition.isdigit() else ""
    if not topic:
        return "a row without a topic"
    if (number := _whole(partition)) is None or not 0 <= number <= PARTITION_MAX:
        return f"partition {partition or 'missing'}, expected a whole number from 0 on"
    if offset and timestamp:
        return f"{of}a row with an offset and a timestamp"
    if not offset and not timestamp:
        return f"{of}a row without an offset and a timestamp"
    if offset and _whole(offset) is None:
        return f"{of}offset {offset}, expected a whole number"
    if timestamp and _whole(timestamp) is None and not _is_moment(timestamp):
        return f"{of}timestamp {timestamp}, expected {_A_TIME}"
    return None


def _whole(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def _is_moment(text: str) -> bool:
    match = _MOMENT.fullmatch(text)
    if match is None or int(match[4] or 0) > _ZONE_HOURS_MAX:
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True
