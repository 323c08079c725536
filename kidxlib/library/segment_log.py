"""A segment's log by its path, whose name holds the segment's base offset."""

from __future__ import annotations

import os

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.storage.location import given_location, location


def segment_log(path: str | os.PathLike[str]) -> tuple[str, int]:
    """The path of a log, or its URL, and the base offset in its name.

    Raises:
        UsageError: that is not a log's name, or a URL of another form than `s3://<bucket>/<key>`.
    """
    text = os.fspath(path)
    place = given_location("", text) or location(text)
    base_offset = parse_segment_log(place.name)
    if base_offset is None:
        raise UsageError(f"{text}: expected the path of a segment's log, which is named <base offset, 20 digits>.log")
    return str(place), base_offset
