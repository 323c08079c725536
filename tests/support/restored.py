"""Log dirs of a killed broker, and ones that were just formatted, for restores without a broker."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Final

from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, LOG_SUFFIX
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from tests.support.cluster_metadata import change, snapshot, write_checkpoints
from tests.support.files import tree
from tests.support.logs import golden

PARTITION: Final = "txn-mixed-0"
WITHOUT_TRANSACTIONS: Final = "plain-zstd-0"
TOPIC_ID: Final = "nK9UueanTPWXzDtprD1jVw"


def id_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode().ljust(16, b"-")[:16]).decode().rstrip("=")


def write_properties(log_dir: Path, node: int, cluster: str) -> None:
    text = f"version=1\nnode.id={node}\ncluster.id={id_of(cluster)}\ndirectory.id={id_of(log_dir.name)}\n"
    (log_dir / META_PROPERTIES).write_text(text)


def write_folder(log_dir: Path, name: str, topic_id: str = TOPIC_ID, sample: str = PARTITION) -> Path:
    shutil.copytree(golden.SAMPLES / sample, log_dir / name)
    (log_dir / name / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return log_dir / name


def killed_log_dir(root: Path, node: int) -> Path:
    """A killed broker's log dir, without metadata."""
    log_dir = root / f"old{node}"
    write_folder(log_dir, PARTITION)
    write_properties(log_dir, node, "old")
    write_checkpoints(log_dir)
    return log_dir


def formatted_log_dir(root: Path, node: int) -> Path:
    """A log dir that was just formatted."""
    log_dir = root / f"new{node}"
    log_dir.mkdir()
    write_properties(log_dir, node, "new")
    level = change("FeatureLevelRecord", name=METADATA_VERSION, featureLevel=30)
    (log_dir / BOOTSTRAP_SNAPSHOT).write_bytes(snapshot([level], 0))
    return log_dir


def contents_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def logs_in(log_dir: Path) -> dict[str, bytes]:
    """The bytes of all logs, by their names in the log dir."""
    return tree(log_dir, f"*{LOG_SUFFIX}")
