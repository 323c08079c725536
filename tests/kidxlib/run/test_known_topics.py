"""Which source has which metadata, and what keeps it from being used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kidxlib.build.source import Source, source_at
from kidxlib.errors import UsageError
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.run.known_topics import MetadataOptions, read_known_topics
from tests.support.cluster_metadata import ID_OF_T, data, log_dir_of_t
from tests.support.object_store import BUCKET, ObjectStore

_AS_OF = "as of offset 6, 1970-01-01T00:00:01.000Z"


def test_a_source_has_the_metadata_in_itslog_dir_of_t(tmp_path: Path) -> None:
    """Also where it is one partition's directory; others have none, but for an option that names one."""
    log_dir, other = log_dir_of_t(tmp_path / "a"), log_dir_of_t(tmp_path / "b", 2, has_metadata=False)
    sources = Source("dir", log_dir), Source("partition", log_dir / "t-0"), Source("other", other)
    known = read_known_topics(MetadataOptions(), sources)
    assert known.of_sources.keys() == {"dir", "partition"}
    assert [known.topic_id(source.name, "t") for source in sources] == [ID_OF_T, ID_OF_T, None]
    assert known.as_of == f"{log_dir / METADATA_DIRECTORY} {_AS_OF}"

    for given in (log_dir, log_dir / METADATA_DIRECTORY):
        named = read_known_topics(MetadataOptions(cluster_metadata=str(given)), sources)
        values = [named.config(source.name, "t", "retention.ms") for source in sources]
        assert [value and value.value for value in values] == ["5", "5", None]  # set for broker 1 alone
        assert len(named.read()) == 1


def test_server_properties_are_those_of_one_node(tmp_path: Path) -> None:
    sources = [Source(str(node), log_dir_of_t(tmp_path / str(node), node)) for node in (1, 2)]
    (tmp_path / "server.properties").write_text("node.id=2\nlog.retention.bytes=7\n")
    known = read_known_topics(MetadataOptions(server_properties=tmp_path / "server.properties"), sources)
    values = [known.config(source.name, "t", "retention.bytes") for source in sources]
    assert [value and value.value for value in values] == [None, "7"]


def test_metadata_that_cannot_be_read_is_a_warning_or_a_mistake(tmp_path: Path) -> None:
    """A mistake where an option names it."""
    log_dir = log_dir_of_t(tmp_path / "a")
    (log_dir / METADATA_DIRECTORY / "00000000000000000000.log").write_bytes(data(0, [b"no metadata"]))
    source = Source("s", log_dir)
    known = read_known_topics(MetadataOptions(metadata_high_watermark=1), (source,))
    assert known.of_sources == {} and len(known.warnings) == 1
    assert "offset 0: found b'no metadata'" in known.warnings[0]
    with pytest.raises(UsageError, match=r"--cluster-metadata .*offset 0: found b'no metadata'"):
        read_known_topics(MetadataOptions(cluster_metadata=str(log_dir), metadata_high_watermark=1), (source,))


@pytest.mark.parametrize(
    ("directory", "file", "message"),
    [
        (None, "of-node-3", "--server-properties {0}/of-node-3: its node.id is none of the sources' (1)"),
        ("none", None, "--cluster-metadata {0}/none: no such directory"),
        ("other", None, "of cluster other, and {0}/a is of cluster c"),
        (None, "none", "--server-properties {0}/none: No such file"),
        (None, "wrong", "--server-properties {0}/wrong: node.id is 'one', expected a number"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, directory: str | None, file: str | None, message: str) -> None:
    log_dir_of_t(tmp_path / "other", cluster_id="other")
    (tmp_path / "wrong").write_text("node.id = one\n")
    (tmp_path / "of-node-3").write_text("node.id = 3\n")
    options = MetadataOptions(
        cluster_metadata=None if directory is None else str(tmp_path / directory),
        server_properties=None if file is None else tmp_path / file,
    )
    with pytest.raises(UsageError, match=re.escape(message.format(tmp_path))):
        read_known_topics(options, (Source("s", log_dir_of_t(tmp_path / "a")),))


@pytest.mark.parametrize("option", ["--server-properties", "--metadata-high-watermark"])
def test_an_option_that_says_nothing_is_a_mistake(tmp_path: Path, option: str) -> None:
    """Nobody has metadata, and without that it is not known what was set while brokers ran."""
    (tmp_path / "1").write_text("")
    is_of_file = option == "--server-properties"
    options = MetadataOptions(
        server_properties=tmp_path / "1" if is_of_file else None, metadata_high_watermark=None if is_of_file else 1
    )
    with pytest.raises(UsageError, match=rf"{option} .*1: no source has __cluster_metadata-0 beside"):
        read_known_topics(options, (Source("s", log_dir_of_t(tmp_path / "a", has_metadata=False)),))


def test_metadata_lies_in_an_object_store_too(store: ObjectStore, tmp_path: Path) -> None:
    """As a source has it, and as an option names it."""
    prefix = "known-topics"
    store.upload(log_dir_of_t(tmp_path / "with"), f"{prefix}/with")
    store.upload(log_dir_of_t(tmp_path / "without", has_metadata=False), f"{prefix}/without")
    where = f"s3://{BUCKET}/{prefix}"
    sources = [source_at(f"{where}/{name}", name) for name in ("with", "without")]
    assert read_known_topics(MetadataOptions(), sources).as_of == f"{where}/with/{METADATA_DIRECTORY} {_AS_OF}"
    for given in (f"{where}/with", f"{where}/with/{METADATA_DIRECTORY}"):
        named = read_known_topics(MetadataOptions(cluster_metadata=given), sources)
        assert [named.topic_id(source.name, "t") for source in sources] == [ID_OF_T, ID_OF_T]
    with pytest.raises(UsageError, match=f"--cluster-metadata {where}/none: no such directory"):
        read_known_topics(MetadataOptions(cluster_metadata=f"{where}/none"), sources)
    for name in store.contents(prefix):
        store.delete(f"{prefix}/{name}")
