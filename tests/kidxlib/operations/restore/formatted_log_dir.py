"""Log dirs as `kafka-storage format` leaves them; those that it really leaves are read beside Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, SnapshotId, kraft_snapshot_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from tests.support.cluster_metadata import change, snapshot

LEVELS: Final = {METADATA_VERSION: 30, "transaction.version": 2}
FIRST_SNAPSHOT: Final = kraft_snapshot_file(SnapshotId(0, 0))


def levels(of: Mapping[str, int] = LEVELS) -> list[bytes]:
    return [change("FeatureLevelRecord", name=name, featureLevel=level) for name, level in of.items()]


def user(name: str, salt: bytes = b"s") -> bytes:
    keys: dict[str, Any] = {"salt": salt, "storedKey": b"k", "serverKey": b"k", "iterations": 4096}
    return change("UserScramCredentialRecord", name=name, mechanism=1, **keys)


def properties(log_dir: Path, node_id: int = 1, cluster_id: str = "c") -> None:
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={'d' * 21}A\n"
    )


def formatted_by_4_3(log_dir: Path, records: Sequence[bytes] = (), node_id: int = 1) -> Path:
    """With `bootstrap.checkpoint`, as of a static quorum."""
    properties(log_dir, node_id)
    (log_dir / BOOTSTRAP_SNAPSHOT).write_bytes(snapshot([*(records or levels())], 0))
    return log_dir


def formatted_by_4_4(log_dir: Path, records: Sequence[bytes] = (), node_id: int = 1) -> Path:
    """With the first snapshot of the metadata log, as of a static quorum."""
    properties(log_dir, node_id)
    (log_dir / METADATA_DIRECTORY).mkdir()
    (log_dir / METADATA_DIRECTORY / FIRST_SNAPSHOT).write_bytes(snapshot([*(records or levels())], 0))
    return log_dir
