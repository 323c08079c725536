"""The names of a segment's files: an offset of 20 digits and a suffix.

Source: `org.apache.kafka.storage.internals.log.LogFileUtils`.
"""

from __future__ import annotations

import re

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

OFFSET_MAX = 2**63 - 1
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")

INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
AUXILIARY_SUFFIXES = (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX)


def segment_file(base_offset: int, suffix: str) -> str:
    """The name of a segment's file: the base offset, zero-padded to 20 digits, and the suffix with its dot."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_log(name: str) -> int | None:
    """The base offset of the segment whose log is called `name`; None where that is no segment's log."""
    return _offset_in(name, LOG_SUFFIX)


def parse_snapshot(name: str) -> int | None:
    """The offset of the producer snapshot that is called `name`; None where that is none."""
    return _offset_in(name, SNAPSHOT_SUFFIX)


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of any file of a segment, or of a snapshot; None where `name` is that of none."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]


def _offset_in(name: str, suffix: str) -> int | None:
    parsed = parse_segment_file(name)
    return parsed[0] if parsed is not None and parsed[1] == suffix else None
