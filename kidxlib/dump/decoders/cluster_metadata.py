"""Records of `__cluster_metadata`, and of its snapshots.

Source: `DumpLogSegments.ClusterMetadataLogMessageParser`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kidxlib.dump.decoders.decoded import Decoded, Part
from kidxlib.errors import UnreadableMessageError
from kidxlib.messages.framed import CLUSTER_METADATA, FramedMessage, read_framed
from kidxlib.messages.json_objects import json_object
from kidxlib.records.reader import Record

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def decode_cluster_metadata(record: Record) -> Decoded:
    """A record of `__cluster_metadata` (`--cluster-metadata-decoder`)."""
    try:
        framed = read_framed(record.value, CLUSTER_METADATA)
    except UnreadableMessageError as error:
        text = f"Error at {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(None, Part(text, text), is_whole=False)
    return Decoded(None, Part(framed_fields(framed)))


def framed_fields(framed: FramedMessage) -> dict[str, Any]:
    """A message of a topic of metadata, as JSON."""
    return {
        "type": _WORD_START.sub("_", framed.message.name).upper(),
        "version": framed.version,
        "data": json_object(framed.message, framed.values, framed.version),
    }
