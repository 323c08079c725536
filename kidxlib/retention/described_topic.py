"""One topic's described configuration: its values, and whether each was set for the topic itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from kidxlib.errors import UsageError
from kidxlib.retention.topic_policy import DECIDING_CONFIGS

#: A release that knows no tiered storage (before 3.6) does not list whether a topic has it. That it is not listed tells
#: so only where all is listed: every release from 2.5 on lists these, at the beginning, in the middle and at the end.
_LISTED_BY_ALL: Final = frozenset(
    {"cleanup.policy", "compression.type", "flush.ms", "index.interval.bytes", "max.message.bytes", "preallocate"}
    | {"retention.bytes", "retention.ms", "segment.bytes", "segment.ms", "unclean.leader.election.enable"}
)
_TIERED: Final = "remote.storage.enable"
#: What Confluent's server calls it.
_TIERED_ELSEWHERE: Final = "confluent.tier.enable"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A value as it was described.

    Attributes:
        of_topic: it was set for the topic itself; otherwise it is its broker's value.
        line: its line in the file; 0 in JSON.
    """

    value: str
    of_topic: bool
    line: int


@dataclass(slots=True)
class Block:
    """The description of one topic, from its head line on."""

    line: int
    of_all: bool
    entries: dict[str, ConfigEntry] = field(default_factory=dict)

    def configs(self) -> dict[str, ConfigEntry]:
        """The values that retention needs."""
        configs = {name: config for name, config in self.entries.items() if name in DECIDING_CONFIGS}
        if (elsewhere := self.entries.get(_TIERED_ELSEWHERE)) is not None and elsewhere.value == "true":
            configs[_TIERED] = elsewhere
        elif self.of_all and self.entries.keys() >= _LISTED_BY_ALL:
            configs.setdefault(_TIERED, ConfigEntry("false", of_topic=False, line=self.line))
        return configs


def raise_malformed(path: Path, line: int, message: str) -> NoReturn:
    """Raise what is wrong with a line of a file."""
    raise UsageError(f"{path}: line {line}: {message}")
