"""What a decoder makes of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kidxlib.messages.json_objects import json_text


@dataclass(frozen=True, slots=True)
class Part:
    """A key or a value that was decoded.

    Attributes:
        fields: as a JSON value.
        text: what Kafka prints; None for this JSON.
    """

    fields: Any
    text: str | None = None

    @property
    def shown(self) -> str:
        """In the words of `kafka-dump-log`."""
        return json_text(self.fields) if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record that was decoded.

    Attributes:
        key, value: None where Kafka prints nothing.
        is_whole: whether all of it could be read. If not, one of the two says what Kafka says to that.
    """

    key: Part | None
    value: Part | None
    is_whole: bool = True
