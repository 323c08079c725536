"""The decoders, by the names of their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kidxlib.dump.decoders.cluster_metadata import decode_cluster_metadata
from kidxlib.dump.decoders.coordinators import (
    decode_consumer_offsets,
    decode_share_group_state,
    decode_transaction_state,
)
from kidxlib.dump.decoders.decoded import Decoded
from kidxlib.dump.decoders.remote_log_metadata import decode_remote_log_metadata
from kidxlib.records.reader import Record

#: What reads the records of one of Kafka's own topics.
Decoder: TypeAlias = Callable[[Record], Decoded]

#: By option: the topic, and what reads its records.
DECODERS: Final[Mapping[str, tuple[str, Decoder]]] = {
    "--offsets-decoder": ("__consumer_offsets", decode_consumer_offsets),
    "--transaction-log-decoder": ("__transaction_state", decode_transaction_state),
    "--cluster-metadata-decoder": ("__cluster_metadata and its snapshots", decode_cluster_metadata),
    "--remote-log-metadata-decoder": ("__remote_log_metadata", decode_remote_log_metadata),
    "--share-group-state-decoder": ("__share_group_state", decode_share_group_state),
}
