"""What to do about findings on remote segments, in words."""

from __future__ import annotations

from typing import Final

from kidxlib.audit.finding import OTHER_VERSION
from kidxlib.audit.tiered.finding import ALL_OBJECTS, METADATA
from kidxlib.audit.tiered.local_log import DELETES, HIDES
from kidxlib.audit.tiered.metadata import EXPIRED, STALLED
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX

_MAKE_ANEW: Final = "make it anew with kidx repair-tiered … --apply, as docs/tiered.md shows"
_MAKE_INDEX_ANEW: Final = (
    f"{_MAKE_ANEW}; then remove the segment's files from "
    "remote-log-index-cache of each broker, which goes on with what it has there"
)
_BRING_LOG_BACK: Final = (
    "bring the object back: from an older version of it in the bucket, a copy of the bucket, or the log dir of a "
    "replica that still has these offsets"
)
_METADATA_IS_WRONG: Final = (
    "nothing mends metadata from outside, and no record may be written to the topic: copy the records of these offsets "
    "into another topic, or let retention reach them"
)
_LOOK_FOR_CAUSE_OF_MANY: Final = (
    "look whether the leader's log says why; where nothing changes, delete the objects by the plugin's own means: kidx "
    "deletes nothing"
)
_DELETE_OBJECTS: Final = "delete the objects by the store's own means: kidx deletes nothing"
_WAIT_FOR_RETENTION: Final = "nothing, as long as the bytes are not too many: retention deletes them"
_MEND_EPOCHS: Final = (
    "let no broker start with this log dir, and stop the one that runs; kidx recover --mend writes the file "
    "again, and another replica's copy of the partition has it"
)
_KEEP_REMOTE_METADATA: Final = (
    "give __remote_log_metadata retention.ms=-1; no record may be written to it: kidx export reads these segments with "
    "--tiered-metadata of a copy that still has their records, or without any metadata"
)
_REMEDIES_BY_REASON: Final = {
    (
        METADATA,
        "gap",
    ): "look for these offsets in log dirs of replicas and in copies of the bucket",
    (LEADER_EPOCH_CHECKPOINT, DELETES): _MEND_EPOCHS,
    (LEADER_EPOCH_CHECKPOINT, HIDES): _MEND_EPOCHS,
    (METADATA, "overlap"): _WAIT_FOR_RETENTION,
    (METADATA, "unreferenced"): _WAIT_FOR_RETENTION,
    (METADATA, "copy-not-finished"): _LOOK_FOR_CAUSE_OF_MANY,
    (METADATA, "delete-not-finished"): _LOOK_FOR_CAUSE_OF_MANY,
    (METADATA, EXPIRED): _KEEP_REMOTE_METADATA,
    (ALL_OBJECTS, EXPIRED): _KEEP_REMOTE_METADATA,
    (METADATA, STALLED): "look in the leader's log for RLMCopyTask: it says why; full disks follow",
    (METADATA, "retention-overdue"): "look for a leader of the partition, and in its log for RLMExpirationTask",
    (METADATA, "metadata-expires-first"): "give __remote_log_metadata retention.ms=-1, before its records go",
    (METADATA, "timestamps-disagree"): "ask --level full which of the two is wrong",
    (ALL_OBJECTS, "missing"): _BRING_LOG_BACK,
    (MANIFEST_SUFFIX, "not-read"): "nothing: kidx has no keys, and reads no objects that the plugin has changed",
    (ALL_OBJECTS, "orphan"): f"make sure that no other cluster uses this bucket; then {_DELETE_OBJECTS}",
    (ALL_OBJECTS, "left-after-delete"): _DELETE_OBJECTS,
    (
        TRANSACTION_INDEX_SUFFIX,
        OTHER_VERSION,
    ): f"before an upgrade, with --kafka-version {KAFKA_4_4}, {_MAKE_INDEX_ANEW}",
    (TRANSACTION_INDEX_SUFFIX, "perhaps-missing"): "ask --level full, which reads the logs",
    (TRANSACTION_INDEX_SUFFIX, "never-asked-for"): _METADATA_IS_WRONG,
    (TRANSACTION_INDEX_SUFFIX, "not-in-metadata"): _METADATA_IS_WRONG,
}
_REMEDIES_BY_FILE: Final = {
    LOG_SUFFIX: _BRING_LOG_BACK,
    METADATA: _METADATA_IS_WRONG,
    INDEXES_SUFFIX: _BRING_LOG_BACK,
    MANIFEST_SUFFIX: _BRING_LOG_BACK,
    SNAPSHOT_SUFFIX: f"{_MAKE_ANEW}; else bring it back from a copy of the bucket or of the log dir that it was copied "
    "from",
    EPOCHS_SUFFIX: f"{_MAKE_ANEW}; else bring it back from a copy of the bucket, or write it anew from a replica's "
    "leader-epoch-checkpoint: its entries that begin before the end of the segment",
}


def what_to_do(file: str, reason: str) -> str:
    return _REMEDIES_BY_REASON.get((file, reason)) or _REMEDIES_BY_FILE.get(file, _MAKE_INDEX_ANEW)
