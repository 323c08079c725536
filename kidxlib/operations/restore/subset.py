"""A part of the topics (`--topics`): surviving metadata without the others, and a line for each that is left out. Such
a topic is not in the restored metadata at all: it would be served empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import METADATA_TOPIC
from kidxlib.operations.restore.inventory import Inventory
from kidxlib.operations.restore.surviving import SurvivingMetadata
from kidxlib.text.words import counted

#: What a cluster lacks without its coordinators' topics.
_CONSEQUENCES_OF_LEAVING_OUT: Final[Mapping[str, str]] = {
    "__consumer_offsets": "consumer groups begin without offsets",
    "__share_group_state": "share groups begin anew",
    "__transaction_state": "no transaction that is open in a log is ever ended",
}


def only_topics(surviving: SurvivingMetadata | None, topics: re.Pattern[str]) -> SurvivingMetadata | None:
    """The metadata without the topics whose full names do not match."""
    if surviving is None:
        return None
    metadata = surviving.metadata
    return replace(
        surviving,
        metadata=replace(
            metadata,
            topics={name: id_ for name, id_ in metadata.topics.items() if topics.fullmatch(name)},
            assignments={each: of for each, of in metadata.assignments.items() if topics.fullmatch(each.topic)},
            topic_configs={name: of for name, of in metadata.topic_configs.items() if topics.fullmatch(name)},
        ),
    )


def left_out_topics(
    inventory: Inventory, surviving: SurvivingMetadata | None, topics: re.Pattern[str]
) -> Iterator[str]:
    """A line for each topic of a source, or of all surviving metadata, that does not match.

    Raises:
        UsageError: no topic matches.
    """
    folders: Counter[str] = Counter() if surviving is None else Counter(dict.fromkeys(surviving.metadata.topics, 0))
    for broker in inventory.brokers:
        for listed in broker.place.directories.values():
            if listed.topic_partition is not None and listed.topic_partition.topic != METADATA_TOPIC:
                folders[listed.topic_partition.topic] += 1
    names = sorted(folders)
    if names and not any(map(topics.fullmatch, names)):
        raise UsageError(
            f"--topics {topics.pattern}: no topic in the sources has such a name; they have {', '.join(names[:5])}"
        )
    for name in names:
        if topics.fullmatch(name) is None:
            without = (
                f": {_CONSEQUENCES_OF_LEAVING_OUT[name]}; add |{name} to --topics to restore it"
                if name in _CONSEQUENCES_OF_LEAVING_OUT
                else ""
            )
            of_it = counted(folders[name], "directory", "directories")
            yield f"topic {name}: --topics does not match; {of_it} of it in the sources{without}"
