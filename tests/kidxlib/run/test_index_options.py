"""The options of a topic's indexes: which of an option, the settings, the topic's own configuration and Kafka's default
they are. The topic's own goes by its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pytest

from kidxlib.catalog.tables import BUILDS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.plan import Plan, find_segments
from kidxlib.indexing.source import IndexPlace, PartitionDirectory, Source, parse_topics
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.recovery.options import (
    INTERVAL,
    INTERVAL_BYTES_DEFAULT,
    MAX_INDEX,
    MAX_INDEX_BYTES_DEFAULT,
    RecoverOptions,
)
from kidxlib.run.index_options import index_options_as_json, index_options_lines, options_of_topic
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.run.settings import BuildSettings, Settings, TopicSettings
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.cluster_metadata import ID_OF_T, OTHER_ID, log_dir_of_t
from tests.support.spark.jobs import kidx_here

_AS_OF: Final = "as of offset 6, 1970-01-01T00:00:01.000Z"
_WINS: Final = "of 1 topic; options and settings win"
_OF_BUILD: Final = BuildSettings(interval_bytes=3, max_index_bytes=300)
_OF_TOPIC: Final = (TopicSettings(match="other", interval_bytes=9), TopicSettings(match="t", interval_bytes=2))


@pytest.mark.parametrize(
    ("option", "settings", "has_metadata", "expected"),
    [
        (1, Settings(build=_OF_BUILD, topic=_OF_TOPIC), True, (1, 300)),
        (None, Settings(build=_OF_BUILD, topic=_OF_TOPIC), True, (2, 300)),
        (None, Settings(build=_OF_BUILD, topic=_OF_TOPIC[:1]), True, (3, 300)),
        (None, Settings(topic=_OF_TOPIC[:1]), True, (512, MAX_INDEX_BYTES_DEFAULT)),
        (None, Settings(), False, (INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT)),
    ],
    ids=["option", "topic", "build", "metadata", "kafka"],
)
def test_the_nearest_wins(
    tmp_path: Path, option: int | None, settings: Settings, has_metadata: bool, expected: tuple[int, int]
) -> None:
    source = Source("s", log_dir_of_t(tmp_path, has_metadata=has_metadata))
    known = read_known_topics((source,))
    partition = PartitionDirectory(source, TopicPartition("t", 0), tmp_path / "t-0")
    of_topic = options_of_topic(
        known, partition, interval_bytes=option, max_index_bytes=None, verify_crc=False, settings=settings
    )
    interval_bytes, max_index_bytes = expected
    assert of_topic.of_id(ID_OF_T) == RecoverOptions(
        interval_bytes=interval_bytes, max_index_bytes=max_index_bytes, verify_crc=False
    )


def _plan(sources: Sequence[Source], known: KnownTopics, interval_bytes: int | None = None) -> Plan:
    return find_segments(
        sources,
        parse_topics("t"),
        IndexPlace(index_dir=Path("/i"), by_source=len(sources) > 1),
        lambda partition: options_of_topic(known, partition, interval_bytes=interval_bytes, max_index_bytes=None),
    )


def test_a_topic_goes_by_its_id(tmp_path: Path) -> None:
    """Of another topic of the name, or one whose id nobody knows, nothing is known."""
    source = Source("s", log_dir_of_t(tmp_path))
    known = read_known_topics((source,))
    plan = _plan((source,), known)
    assert plan.partitions[0].options == RecoverOptions(interval_bytes=512)  # no index can do with 4 bytes
    assert _plan((source,), known, 100).partitions[0].options == RecoverOptions(interval_bytes=100)
    where = f"{tmp_path / METADATA_DIRECTORY} {_AS_OF}"
    assert index_options_lines(known, plan) == [f"{where}: {INTERVAL} is set in 1 (topic 1) {_WINS}"]
    taken = {INTERVAL: {"topic": 1}, MAX_INDEX: {}}
    of_copy = {"directory": str(tmp_path / METADATA_DIRECTORY), "offset": 6, "timestamp_ms": 1_000, "end_offset": 6}
    assert index_options_as_json(known, plan) == [{**of_copy, "topics": 1, "taken": taken}]

    for other in (f"version: 0\ntopic_id: {OTHER_ID}\n", None):
        metadata = tmp_path / "t-0" / "partition.metadata"
        metadata.unlink() if other is None else metadata.write_text(other)
        plan = _plan((source,), known)
        assert plan.partitions[0].options == RecoverOptions()
        assert index_options_lines(known, plan) == [where]


def test_a_topic_in_two_log_dirs_is_counted_once(tmp_path: Path) -> None:
    first, second = log_dir_of_t(tmp_path / "a"), log_dir_of_t(tmp_path / "b", has_metadata=False)
    (second / "t-0").rename(second / "t-1")
    sources = Source("a", first), Source("b", second)
    known = read_known_topics(sources)
    [told] = index_options_as_json(known, _plan(sources, known))
    assert (told["topics"], told["taken"]) == (1, {INTERVAL: {"topic": 1}, MAX_INDEX: {}})


def test_builds_and_audits_take_what_a_topic_is_configured_to(tmp_path: Path) -> None:
    """A build reads again what was built with another value; what an option or a setting says wins."""
    log_dir, catalog, settings = log_dir_of_t(tmp_path / "logs"), tmp_path / "catalog", tmp_path / "kidx.toml"
    to_index = "--index-dir", tmp_path / "index"
    offset_index = tmp_path / "index" / "t-0" / "00000000000000000000.index"
    settings.write_text("[build]\ninterval_bytes = 4096\n")

    def build(*options: str | Path) -> tuple[int, int, int]:
        """How many segments it read, for how many topics it took their own interval, and the entries of the index."""
        ended = kidx_here("build", log_dir, *to_index, "--catalog", catalog, "--topics", "t", "--json", *options)
        assert ended.code == 0, ended.err
        [told] = ended.json["cluster_metadata"]
        own = told["taken"][INTERVAL].get("topic", 0)
        return ended.json["segments"], own, offset_index.stat().st_size // 8

    assert build("--settings", settings) == (1, 0, 3)
    assert build() == (1, 1, 19)
    assert build() == (0, 1, 19)
    assert build("--interval-bytes", "4096") == (1, 0, 3)
    assert build() == (1, 1, 19)
    recorded = DeltaTables(str(catalog)).read(BUILDS, ["options"])["options"].combine_chunks()
    as_of = pc.map_lookup(recorded, "cluster_metadata", "first").unique().to_pylist()
    assert as_of == [f"{log_dir / METADATA_DIRECTORY} {_AS_OF}"]

    # Where it cannot be read, or is away, what it once said stays, until somebody says otherwise.
    metadata = log_dir / METADATA_DIRECTORY
    log = metadata / "00000000000000000000.log"
    content = log.read_bytes()
    log.write_bytes(content[:40])

    def segments_read(*options: str) -> int:
        ended = kidx_here("build", log_dir, *to_index, "--catalog", catalog, "--topics", "t", "--json", *options)
        assert ended.code == 0, ended.err
        return int(ended.json["segments"])

    assert segments_read() == 0
    metadata.rename(tmp_path / "away")
    assert segments_read() == 0 and offset_index.stat().st_size == 19 * 8
    assert segments_read("--interval-bytes", "4096") == 1 and offset_index.stat().st_size == 3 * 8
    (tmp_path / "away").rename(metadata)
    log.write_bytes(content)
    assert build() == (1, 1, 19)

    def verdicts(*options: str) -> list[str]:
        ended = kidx_here("verify", log_dir, *to_index, "--json", *options)
        return [each["verdict"] for each in ended.json["files"] if each["path"] == str(offset_index)]

    assert (verdicts(), verdicts("--interval-bytes", "4096")) == (["identical"], ["safe"])
