"""Audits of a bucket in the layout of Aiven's plugin. Its objects are made here, of what a broker has uploaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.audit.tiered.remote_finding import AuditLevel
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.layout import AIVEN, INDEXES_SUFFIX, MANIFEST_SUFFIX, object_name
from tests.support import cluster_metadata as made_up
from tests.support.audits import verified_tiered
from tests.support.tiered_sites import SAMPLE, RemoteSegment, as_by_aivens_plugin

_PARTITIONS: Final = [("readings", 0), ("readings", 1), ("payments", 0)]


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """The sample's segments, as the plugin would have named and packed them."""
    segments = [segment for place in _PARTITIONS for segment in SAMPLE.segments(*place)]
    as_by_aivens_plugin(segments, tmp_path)
    return tmp_path


def _path(bucket: Path, segment: RemoteSegment, suffix: str) -> Path:
    name = object_name(segment.offsets[0], segment.id, suffix)
    return bucket / AIVEN.partition_path(segment.partition) / name


def _audited(bucket: Path, level: str, code: int) -> list[dict[str, Any]]:
    where = (bucket, "--layout", "aiven", "--tiered-metadata", SAMPLE.log_dir, "--level", level)
    found: list[dict[str, Any]] = verified_tiered(*where, code=code)["findings"]
    return found


@pytest.mark.parametrize("level", list(AuditLevel))
def test_nothing_is_found_in_a_sound_bucket(bucket: Path, level: AuditLevel) -> None:
    assert _audited(bucket, level, 0) == []


def _says(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Let a manifest say something else."""

    def plant(path: Path) -> None:
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return plant


@pytest.mark.parametrize(
    ("suffix", "plant", "found", "level"),
    [
        (LOG_SUFFIX, Path.unlink, (LOG_SUFFIX, "missing"), "listing"),
        (INDEXES_SUFFIX, Path.unlink, (INDEXES_SUFFIX, "missing"), "listing"),
        (MANIFEST_SUFFIX, Path.unlink, (MANIFEST_SUFFIX, "missing"), "listing"),
        (MANIFEST_SUFFIX, lambda path: path.write_text("{}"), (MANIFEST_SUFFIX, "unreadable"), "indexes"),
        (
            MANIFEST_SUFFIX,
            _says(lambda manifest: manifest["remoteLogSegmentMetadata"].update(endOffset=1)),
            (MANIFEST_SUFFIX, "disagrees"),
            "indexes",
        ),
        (
            MANIFEST_SUFFIX,
            _says(lambda manifest: manifest["remoteLogSegmentMetadata"]["remoteLogSegmentId"].update(id="k" * 22)),
            (MANIFEST_SUFFIX, "disagrees"),
            "indexes",
        ),
        (
            MANIFEST_SUFFIX,
            _says(lambda manifest: manifest.update(compression=True)),
            (MANIFEST_SUFFIX, "not-read"),
            "full",
        ),
        (
            INDEXES_SUFFIX,
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            (INDEXES_SUFFIX, "wrong-size"),
            "indexes",
        ),
        (
            INDEXES_SUFFIX,
            lambda path: path.write_bytes(path.read_bytes()[:7] + b"\1" + path.read_bytes()[8:]),
            (OFFSET_INDEX_SUFFIX, "misses-batches"),
            "full",
        ),
    ],
)
def test_damages(
    bucket: Path, suffix: str, plant: Callable[[Path], object], found: tuple[str, str], level: str
) -> None:
    plant(_path(bucket, SAMPLE.segments("readings")[1], suffix))
    code = 0 if found[1] == "not-read" else 3
    assert [(each["file"], each["reason"]) for each in _audited(bucket, level, code)] == [found]


@pytest.mark.parametrize("level", ["indexes", "full"])
def test_a_transaction_index_that_was_not_copied(bucket: Path, level: str) -> None:
    segment = next(each for each in SAMPLE.segments("payments") if not each.row["transaction_index_empty"])
    manifest = _path(bucket, segment, MANIFEST_SUFFIX)
    given = json.loads(manifest.read_text())
    size = given["segmentIndexes"]["transaction"]["size"]
    _says(lambda changed: changed["segmentIndexes"].update(transaction=None))(manifest)
    indexes = _path(bucket, segment, INDEXES_SUFFIX)
    indexes.write_bytes(indexes.read_bytes()[:-size])
    assert [(each["file"], each["reason"]) for each in _audited(bucket, level, 3)] == [
        (TRANSACTION_INDEX_SUFFIX, "missing")
    ]


@pytest.mark.parametrize("level", ["indexes", "full"])
def test_versions_of_aborted_transactions_go_by_the_kafka_of_brokers(tmp_path: Path, level: str) -> None:
    """By what is asked for, or what brokers have registered; the finding names the other answer."""
    site = SAMPLE.copy(tmp_path)
    indexes = (segment.objects().get(TRANSACTION_INDEX_SUFFIX) for segment in site.segments("payments"))
    index = next(path for path in indexes if path is not None)
    index.write_bytes(b"\0\1" + index.read_bytes()[2:])
    where = (site.bucket, "--tiered-metadata", site.log_dir, "--level", level)
    for version, code, reason, said in (
        ("4.4", 3, "fails-sanity-check", "which only Kafka up to 4.3 takes for that"),
        ("4.3", 0, "other-version", "Kafka 4.3, as --kafka-version says, takes it for 0"),
    ):
        [finding] = verified_tiered(*where, "--kafka-version", version, code=code)["findings"]
        assert (finding["file"], finding["reason"]) == (TRANSACTION_INDEX_SUFFIX, reason)
        assert said in finding["detail"] and "fetches of offsets" in finding["consequence"], finding
        assert ("from 4.4 on" in finding["consequence"]) == (code == 0)
    for level_of_node, reason in ((30, "other-version"), (33, "fails-sanity-check")):
        shutil.rmtree(site.log_dir / METADATA_DIRECTORY)
        node = made_up.of_broker("RegisterBrokerRecord", 1, [made_up.topic_id("a")], level=level_of_node)
        made_up.put_metadata(site.log_dir, [node])
        found = verified_tiered(*where, code=3 if level_of_node > 30 else 0)
        assert reason in {finding["reason"] for finding in found["findings"]}
