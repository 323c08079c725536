"""Which of an option, the settings, the topic's own configuration and Kafka's default a topic's indexes go by."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.options import MetadataOptions
from kidxlib.run.settings import BuildSettings, Settings, TopicSettings
from kidxlib.run.topic_options import recover_options
from tests.support.cluster_metadata import ID_OF_T, log_dir_of_t

_OF_BUILD = BuildSettings(interval_bytes=3, max_index_bytes=300)
_OF_TOPIC = (TopicSettings(match="other", interval_bytes=9), TopicSettings(match="t", interval_bytes=2))


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
    known = read_known_topics(MetadataOptions(), (source,))
    partition = PartitionDirectory(source, TopicPartition("t", 0), tmp_path / "t-0")
    found = recover_options(settings, known, partition, option, verify_crc=False)
    interval_bytes, max_index_bytes = expected
    assert found.of_id(ID_OF_T) == RecoverOptions(
        interval_bytes=interval_bytes, max_index_bytes=max_index_bytes, verify_crc=False
    )
