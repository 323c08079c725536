"""Kafka's definitions of its messages, from its jars into `kidxlib/messages/definitions.json`.

Run as `python -m tests.kafka.definitions` after a change of Kafka's version in `conf/jars/kafka.xml`. What is taken
says how bytes are laid out; what only describes it, or says who may write it, is left out. A key that is not known here
ends the run: it may change how bytes are read. Messages and fields that `BESIDE` lacks say since which release they are
there; another difference between the two ends the run, too.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.kafka.jars import BESIDE, PROJECT, PROMISED, jars_of

TARGET: Final = PROJECT / "kidxlib" / "messages" / "definitions.json"

#: By jar, which of its messages are taken.
_WANTED: Final[Mapping[str, re.Pattern[str]]] = {
    "kafka-clients": re.compile(
        r"common/message/(ConsumerProtocol(Subscription|Assignment)|LeaderChangeMessage|Snapshot(Header|Footer)Record"
        r"|KRaftVersionRecord|VotersRecord|EndTxnMarker)\.json"
    ),
    "kafka-group-coordinator": re.compile(r"common/message/\w+\.json"),
    "kafka-metadata": re.compile(r"common/metadata/\w+\.json"),
    "kafka-share-coordinator": re.compile(r"common/message/\w+\.json"),
    "kafka-storage": re.compile(r"message/Remote\w+\.json"),
    "kafka-transaction-coordinator": re.compile(r"common/message/\w+\.json"),
}
_TAKEN: Final = {
    *("name", "type", "apiKey", "validVersions", "flexibleVersions", "fields", "commonStructs"),
    *("versions", "nullableVersions", "taggedVersions", "tag", "default"),
}
#: Of these, a release may have more than the one before.
_OF_PARTS: Final = ("fields", "commonStructs")
_LEFT_OUT: Final = {"about", "entityType", "mapKey", "ignorable", "zeroCopy"}


def definitions() -> str:
    """The text of the file, by the jars that `./setup.sh kafka` fetches; a line for each message."""
    releases = [(version, jars_of(version)) for version in (BESIDE, PROMISED)]
    modules = []
    for module, wanted in _WANTED.items():
        messages = _messages_of(module, wanted, releases).values()
        lines = ",\n".join(json.dumps(message, separators=(",", ":")) for message in messages)
        modules.append(f'"{module}": [\n{lines}\n]')
    origin = f"Apache Kafka {PROMISED}, beside {BESIDE}, Apache License 2.0; by python -m tests.kafka.definitions"
    joined = ",\n".join(modules)
    return f'{{"kafka": "{PROMISED}", "origin": "{origin}", "modules": {{\n{joined}\n}}}}\n'


def _messages_of(module: str, wanted: re.Pattern[str], releases: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """The messages of a module as the last of the releases has them, by name."""
    messages: dict[str, Any] | None = None
    for version, jars in releases:
        found = {message["name"]: message for message in _messages(jars / f"{module}-{version}.jar", wanted)}
        messages = found if messages is None else _marked(found, messages, version, module)
    return messages or {}


def _marked(found: dict[str, Any], before: Mapping[str, Any], version: str, where: str) -> dict[str, Any]:
    """Messages, fields or structs of a release by name, with since when they are there."""
    if gone := before.keys() - found.keys():
        raise ValueError(f"{where}: Kafka {version} has no {', '.join(sorted(gone))}; releases before it have")
    since = {"since": version.rpartition(".")[0]}
    return {
        name: _marked_one(each, before[name], version, f"{where} {name}") if name in before else each | since
        for name, each in found.items()
    }


def _marked_one(found: Mapping[str, Any], before: Mapping[str, Any], version: str, where: str) -> dict[str, Any]:
    marked = {**found, **{key: before[key] for key in ("since",) if key in before}}
    for key in marked.keys() | before.keys():
        if key in _OF_PARTS:
            parts, parts_before = ({part["name"]: part for part in each.get(key, ())} for each in (found, before))
            marked[key] = list(_marked(parts, parts_before, version, where).values())
        elif marked.get(key) != before.get(key):
            raise ValueError(f"{where}: {key} is {before.get(key)} before Kafka {version}, and {marked.get(key)} in it")
    return marked


def _messages(jar: Path, wanted: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(filter(wanted.fullmatch, archive.namelist())):
            # Kafka's parser takes comments. They stand in lines of their own or behind a comma, and no text has `//`.
            text = re.sub(r"//.*", "", archive.read(name).decode())
            yield _taken(json.loads(text), name)


def _taken(given: Any, where: str) -> Any:
    if isinstance(given, list):
        return [_taken(each, where) for each in given]
    if not isinstance(given, dict):
        return given
    unknown = given.keys() - _TAKEN - _LEFT_OUT
    if unknown:
        raise ValueError(f"{where}: keys {sorted(unknown)}, expected {sorted(_TAKEN | _LEFT_OUT)}")
    # A default that is null, and no text that says null, is none for Kafka's generator.
    return {key: _taken(each, where) for key, each in given.items() if key in _TAKEN and each is not None}


if __name__ == "__main__":
    TARGET.write_text(definitions())
