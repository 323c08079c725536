"""What cannot be written. What can be is read again in `test_reading`, and by Kafka in `test_dump_decoders`."""

from __future__ import annotations

from typing import Any

import pytest

from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA
from kidxlib.messages.writing import write_message


@pytest.mark.parametrize(
    ("name", "version", "values", "says"),
    [
        ("TopicRecord", 1, {}, "TopicRecord of version 1, which it does not have"),
        ("PartitionRecord", 0, {"directories": ["A" * 22]}, "PartitionRecord of version 0 lacks directories"),
        ("TopicRecord", 0, {"name": None}, "TopicRecord: name is null"),
        ("PartitionRecord", 2, {"replicas": None}, "PartitionRecord: replicas is null"),
    ],
)
def test_what_a_reader_would_not_see_is_refused(name: str, version: int, values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        write_message(messages_of(CLUSTER_METADATA)[name], values, version)
