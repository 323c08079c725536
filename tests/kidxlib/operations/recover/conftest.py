"""Log dirs of a broker, all of whose files are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, offset_checkpoint
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from tests.kidxlib.operations.recover.plans import ENDS
from tests.support import cluster_metadata
from tests.support.audits import sound_copies


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of the sample as the log dir of a broker of before 3.7, all of whose files are there."""
    log_dir = tmp_path_factory.mktemp("recover-run") / "whole"
    log_dir.mkdir()
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    sound_copies(log_dir, *(partition.directory for partition in ENDS))
    cluster_metadata.write_checkpoints(log_dir, ENDS)
    return log_dir


@pytest.fixture
def log_dir(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "logs"))


@pytest.fixture
def two(log_dir: Path, tmp_path: Path) -> list[Path]:
    """Two log dirs of a broker whose metadata names both; the first has it."""
    ids = [cluster_metadata.topic_id(letter) for letter in "xy"]
    more = tmp_path / "more"
    more.mkdir()
    (log_dir / "append-time-0").rename(more / "append-time-0")
    values = [cluster_metadata.of_broker("RegisterBrokerRecord", 1, ids)]
    for partition, directory_id in zip(ENDS, ids, strict=True):
        for place in (log_dir, more):
            if (metadata := place / partition.directory / PARTITION_METADATA).exists():
                topic_id = metadata.read_text().split()[-1]
        values.append(cluster_metadata.topic(partition.topic, topic_id))
        values.append(cluster_metadata.partition(topic_id, partition.partition, [1], [directory_id]))
    for place, directory_id, partition in zip((log_dir, more), ids, ENDS, strict=True):
        (place / META_PROPERTIES).write_text(f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={directory_id}\n")
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            (place / name).write_bytes(offset_checkpoint({partition: ENDS[partition]}))
        cluster_metadata.write_checkpoints(place)
    cluster_metadata.put_metadata(log_dir, values, 1_000)
    return [log_dir, more]
