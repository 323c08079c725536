"""How much of a bucket an audit reads."""

from __future__ import annotations

import enum


class Level(enum.StrEnum):
    """How much of a bucket an audit reads."""

    LISTING = "listing"  # names and sizes
    INDEXES = "indexes"  # the bytes of all objects but logs, too
    FULL = "full"  # all bytes
