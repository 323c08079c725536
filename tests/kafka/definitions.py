"""Kafka's definitions of its messages, from its jars into `kidxlib/messages/definitions.json`.

Run as `python -m tests.kafka.definitions` after a change of Kafka's version in `conf/jars/kafka.xml`. What is taken
says how bytes are laid out; what only describes it, or says who may write it, is left out. A key that is not known here
ends the run: it may change how bytes are read.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.kafka.jars import JARS, PROJECT

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
_LEFT_OUT: Final = {"about", "entityType", "mapKey", "ignorable", "zeroCopy"}


def definitions() -> str:
    """The text of the file, by the jars that `./setup.sh kafka` fetches; a line for each message."""
    [clients] = JARS.glob("kafka-clients-*.jar")
    version = clients.stem.removeprefix("kafka-clients-")
    modules = []
    for module, wanted in _WANTED.items():
        messages = ",\n".join(_messages(JARS / f"{module}-{version}.jar", wanted))
        modules.append(f'"{module}": [\n{messages}\n]')
    origin = f"Apache Kafka {version}, Apache License 2.0; by python -m tests.kafka.definitions"
    joined = ",\n".join(modules)
    return f'{{"kafka": "{version}", "origin": "{origin}", "modules": {{\n{joined}\n}}}}\n'


def _messages(jar: Path, wanted: re.Pattern[str]) -> Iterator[str]:
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(filter(wanted.fullmatch, archive.namelist())):
            # Kafka's parser takes comments. They stand in lines of their own or behind a comma, and no text has `//`.
            text = re.sub(r"//.*", "", archive.read(name).decode())
            yield json.dumps(_taken(json.loads(text), name), separators=(",", ":"))


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
