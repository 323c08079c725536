"""What the records of control batches say: the markers of transactions, and those of KRaft's own log.

Sources: `ControlRecordType`, `EndTransactionMarker`, which are read as version 0, whatever version they give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.format import layouts as formats
from kidxlib.records.accessor import Accessor, accessor_of, check_version
from kidxlib.records.kraft import kraft_version, kraft_voters, leader_change, snapshot_footer, snapshot_header
from kidxlib.records.record import Record


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """What a control record says.

    Attributes:
        type_id: as its key gives it.
        name: of that type; None where Kafka knows none.
        fields: of its value, by the names of Kafka's message; None where the type is not known.
    """

    type_id: int
    name: str | None
    fields: dict[str, Any] | None


def read_control_record(record: Record) -> ControlRecord:
    """
    Raises:
        MalformedError: Kafka throws, too: key or value are null, too short, or of a version below 0.
    """
    key = accessor_of(record.key, "key of a control record")
    if len(key.data) < formats.CONTROL_KEY_BYTES:
        key.fail(f"{formats.CONTROL_KEY_BYTES} bytes or more")
    check_version(key)
    type_id = key.number(2)
    if type_id not in _TYPES:
        return ControlRecord(type_id, None, None)
    name, read = _TYPES[type_id]
    return ControlRecord(type_id, name, read(accessor_of(record.value, f"value of a control record {name}")))


def _end_of_transaction(value: Accessor) -> dict[str, Any]:
    check_version(value)
    return {"coordinatorEpoch": value.number(4)}


_TYPES: Final[dict[int, tuple[str, Callable[[Accessor], dict[str, Any]]]]] = {
    formats.CONTROL_TYPE_ABORT: ("ABORT", _end_of_transaction),
    formats.CONTROL_TYPE_COMMIT: ("COMMIT", _end_of_transaction),
    2: ("LEADER_CHANGE", leader_change),
    3: ("SNAPSHOT_HEADER", snapshot_header),
    4: ("SNAPSHOT_FOOTER", snapshot_footer),
    5: ("KRAFT_VERSION", kraft_version),
    6: ("KRAFT_VOTERS", kraft_voters),
}
