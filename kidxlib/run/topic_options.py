"""What a topic's indexes are built with, by options and settings."""

from __future__ import annotations

import re

from kidxlib.recovery.options import RecoverOptions
from kidxlib.run.settings import Settings, TopicSettings


def recover_options(
    settings: Settings, topic: str, interval_bytes: int | None, max_index_bytes: int | None = None
) -> RecoverOptions:
    """What a topic's indexes are like: the option, else the first matching [[topic]], else [build]."""
    build = settings.build
    matching = (entry for entry in settings.topic if re.fullmatch(entry.match, topic))
    own = next(matching, TopicSettings(match=""))

    def choose(*values: int | None) -> int:
        return next(value for value in values if value is not None)

    return RecoverOptions(
        interval_bytes=choose(interval_bytes, own.interval_bytes, build.interval_bytes),
        max_index_bytes=choose(max_index_bytes, own.max_index_bytes, build.max_index_bytes),
    )
