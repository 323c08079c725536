"""The settings of tiered topics that say what is kept, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.java import parse_integer

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
LOCAL_RETENTION_MS: Final = "local.retention.ms"
LOCAL_RETENTION_BYTES: Final = "local.retention.bytes"
#: Settings that may be asked about, each with the least value that Kafka takes.
SETTINGS: Final = {RETENTION_MS: -1, RETENTION_BYTES: -1, LOCAL_RETENTION_MS: -2, LOCAL_RETENTION_BYTES: -2}


def parse_settings(texts: Iterable[str]) -> dict[str, int]:
    """The settings of `--what-if NAME=VALUE`.

    Raises:
        UsageError: one is none of `SETTINGS`, or its value none that Kafka takes.
    """
    settings = {}
    for text in texts:
        name, _, value = text.partition("=")
        number = parse_integer(value, 64)
        if name not in SETTINGS or number is None or number < SETTINGS[name]:
            raise UsageError(
                f"--what-if {text}: expected NAME=NUMBER of {', '.join(SETTINGS)}; -1 is no limit, and -2 of the local "
                "ones the same as of all"
            )
        settings[name] = number
    return settings
