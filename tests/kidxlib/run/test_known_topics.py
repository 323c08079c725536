"""Which source has which metadata, and what keeps it from being used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kidxlib.errors import UsageError
from kidxlib.indexing.source import Source, source_at
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.run.known_topics import ensure_proven, read_known_topics
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.terminal.options import MetadataOptions
from tests.support.cluster_metadata import (
    ID_OF_T,
    OTHER_ID,
    config,
    data,
    leader_change,
    log_dir_of_t,
    of_broker,
    of_controller,
    partition,
    snapshot,
    topic,
    topic_id,
    voters_record,
    write_copy,
)
from tests.support.object_store import BUCKET, ObjectStore

_AS_OF = "as of offset 6, 1970-01-01T00:00:01.000Z"


def test_a_source_has_the_metadata_in_itslog_dir_of_t(tmp_path: Path) -> None:
    """Also where it is one partition's directory; another has what an option names."""
    log_dir, other = log_dir_of_t(tmp_path / "a"), log_dir_of_t(tmp_path / "b", 2, has_metadata=False)
    (other / "meta.properties").write_text("node.id=2\n")
    sources = Source("dir", log_dir), Source("partition", log_dir / "t-0"), Source("other", other)
    known = read_known_topics(sources)
    assert known.of_sources.keys() == {"dir", "partition"}
    assert [known.topic_id(source.name, "t") for source in sources] == [ID_OF_T, ID_OF_T, None]
    assert known.as_of == f"{log_dir / METADATA_DIRECTORY} {_AS_OF}"

    for given in (log_dir, log_dir / METADATA_DIRECTORY):
        named = read_known_topics(sources, options=MetadataOptions(cluster_metadata=str(given)))
        values = [named.config(source.name, "t", "retention.ms") for source in sources]
        assert [value and value.value for value in values] == ["5", "5", None]  # set for broker 1 alone
        assert len(named.read()) == 1


def test_server_properties_are_those_of_one_node(tmp_path: Path) -> None:
    sources = [Source(str(node), log_dir_of_t(tmp_path / str(node), node)) for node in (1, 2)]
    (tmp_path / "server.properties").write_text("process.roles=broker\nnode.id=2\nlog.retention.bytes=7\n")
    known = read_known_topics(sources, options=MetadataOptions(server_properties=tmp_path / "server.properties"))
    values = [known.config(source.name, "t", "retention.bytes") for source in sources]
    assert [value and value.value for value in values] == [None, "7"]


def test_a_server_properties_that_may_be_another_brokers_is_told(tmp_path: Path) -> None:
    """It is believed, as nothing is deleted by it here; one line for all log dirs that it does not name."""
    sources = [Source(name, log_dir_of_t(tmp_path / name, 1)) for name in "abc"]
    file = tmp_path / "server.properties"
    (tmp_path / "link").symlink_to(sources[0].path)
    (tmp_path / "c" / META_PROPERTIES).write_text("cluster.id=c\n")

    def told(text: str) -> Sequence[str]:
        file.write_text(f"process.roles=broker,controller\nnode.id=1\n{text}")
        return read_known_topics(sources, options=MetadataOptions(server_properties=file)).warnings

    begin = f"--server-properties {file} (node.id=1): it may be another broker's, as "
    end = "; its values are used all the same"
    for text, why in (
        ("log.dirs=/data/a", f"its log.dirs (/data/a) do not name {', '.join(str(each.path) for each in sources)}"),
        (
            f"log.dirs=a,{tmp_path}/link,{tmp_path}/c",
            f"its log.dirs (a, {tmp_path}/link, {tmp_path}/c) do not name {tmp_path}/b",
        ),
    ):
        [line] = told(text)
        assert line.startswith(f"{begin}{sources[2].path / META_PROPERTIES} names no node, and {why}; as the disk has")
        assert line.endswith(end)
    file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/a,{tmp_path}/b")
    assert read_known_topics(sources[:2], options=MetadataOptions(server_properties=file)).warnings == []


def test_a_server_properties_that_the_log_dir_contradicts_is_not_its_brokers(tmp_path: Path) -> None:
    """By the broker's registration, also where a disk was out of use as it started; by a static quorum's voters."""
    log_dir, ids = log_dir_of_t(tmp_path / "a"), [topic_id(letter) for letter in "xyz"]
    metadata, file = log_dir / METADATA_DIRECTORY, tmp_path / "server.properties"
    broker = of_broker("RegisterBrokerRecord", 1, ids[:2])
    places = [ids[2], topic_id("A"), ids[1]]
    values = [broker, topic("t", ID_OF_T), *(partition(ID_OF_T, n, [1], [place]) for n, place in enumerate(places))]
    write_copy(metadata, {0: leader_change(0, [1, 3]) + data(1, values)})
    for text, why in (
        (f"log.dirs={log_dir},/b", ()),
        (f"log.dirs={log_dir},/b,/c\ncontroller.quorum.voters=3@x:1, 1@y:2\ncluster.id=c", ()),
        (f"log.dirs={log_dir}", (f"its log.dirs ({log_dir}) are 1, and by {metadata} broker 1 has 2 (directory.id ",)),
        (f"log.dirs={log_dir},/b,/c,/d", (f"are 4, and by {metadata} broker 1 has 3 (directory.id ",)),
        (
            f"log.dirs={log_dir},/b\ncontroller.quorum.voters=1@y:2\ncluster.id=d",
            (
                "its cluster.id is d, and that of meta.properties is c",
                f"controller.quorum.voters=1@y:2, and by {metadata} the voters are 1, 3",
            ),
        ),
    ):
        file.write_text(f"process.roles=broker,controller\nnode.id=1\n{text}")
        _assert_contradicted(file, log_dir, why)


def _assert_contradicted(file: Path, log_dir: Path, why: Sequence[str]) -> str:
    """What the warning says of a file."""
    sources, options = (Source("s", log_dir),), MetadataOptions(server_properties=file)
    known = read_known_topics(sources, options=options)
    assert len(known.contradicted) == len(why), known.contradicted
    assert all(map(str.__contains__, known.contradicted, why)), known.contradicted
    ensure = partial(ensure_proven, options, known, sources, same_broker=True)
    if why:
        assert "it is another broker's, or not the one of its last start" in known.warnings[0]
        with pytest.raises(UsageError, match=r"also with --same-broker: .*or start the broker with this one first"):
            ensure()
    else:
        ensure()
    return "".join(known.warnings)


_AS_REGISTERED = "broker.rack=r\nlisteners=PLAINTEXT://:9092,C://:9093\nadvertised.listeners=PLAINTEXT://K1:9092"
_QUORUM = "controller.quorum.bootstrap.servers"
_VOTERS = "controller.quorum.voters"
_UNCONFIRMED = "nothing on the disk confirms whose it is"


@pytest.mark.parametrize(
    ("text", "why", "compared"),
    [
        (f"{_AS_REGISTERED}\n{_QUORUM}=name:9093", (), "not compared: controller.quorum.voters; its values"),
        (f"{_AS_REGISTERED}\n{_QUORUM}=x:9999,c2:9093", (), "broker.rack, process.roles, listeners of the broker"),
        (
            _AS_REGISTERED.replace("=PLAINTEXT://K1:9092", "=${file:/x:y}"),
            (),
            "nothing on the disk confirms whose it is",
        ),
        ("broker.rack=r\nlisteners=PLAINTEXT://:9092,C://:9093", (), _UNCONFIRMED),
        (
            f"broker.rack=r\nlisteners=PLAINTEXT://:9092,C://:9093\n{_QUORUM}=other:9093\n{_VOTERS}=1@other:9094",
            (
                f"its {_QUORUM} is other:9093, and by {{0}} the controllers are at C://c1:9093, C://c2:9093",
                f"its {_VOTERS} is 1@other:9094, and by",
            ),
            "",
        ),
        (
            _AS_REGISTERED.replace("=r", "=s").replace("K1", "k2"),
            (
                "its broker.rack is s, and by {0} broker 1 has r",
                "its listeners of the broker are PLAINTEXT://k2:9092, and by {0} broker 1 has registered "
                "PLAINTEXT://k1:9092",
            ),
            "",
        ),
        (
            "listeners=SSL://:9092,C://:9094",
            (
                "its broker.rack is not set, and by {0} broker 1 has r",
                "are SSL://:9092, and by",
                "its listeners of the controller are C://:9094, and by {0} controller 1 has registered C://c1:9093",
            ),
            "",
        ),
        (f"{_AS_REGISTERED}\nprocess.roles=broker", ("its process.roles is broker, and by {0} node 1 is a voter",), ""),
    ],
)
def test_a_server_properties_is_compared_with_what_the_node_registered(
    tmp_path: Path, text: str, why: Sequence[str], compared: str
) -> None:
    """Its rack, its listeners, its roles, and where the voters of a dynamic quorum are. One line says what was
    compared, and what was not.
    """
    log_dir, file = log_dir_of_t(tmp_path / "a"), tmp_path / "server.properties"
    metadata = log_dir / METADATA_DIRECTORY
    values = [
        of_broker("RegisterBrokerRecord", 1, [topic_id("x")], "q", ["OLD://k0:1"]),
        of_broker("RegisterBrokerRecord", 1, [topic_id("x")], "r", ["PLAINTEXT://k1:9092"]),
        of_broker("BrokerRegistrationChangeRecord", 1, []),
        of_controller(1, "C://c1:9093"),
    ]
    voters = voters_record(0, {1: "C://c1:9093", 2: "C://c2:9093"})
    write_copy(metadata, {0: voters + data(1, values)})
    file.write_text(f"process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\nlog.dirs=/x\n{text}")
    assert compared in _assert_contradicted(file, log_dir, [each.format(metadata) for each in why])


def test_metadata_that_cannot_be_read_is_a_warning_or_a_mistake(tmp_path: Path) -> None:
    """A mistake where an option names it."""
    log_dir = log_dir_of_t(tmp_path / "a")
    (log_dir / METADATA_DIRECTORY / "00000000000000000000.log").write_bytes(data(0, [b"no metadata"]))
    source = Source("s", log_dir)
    known = read_known_topics((source,), options=MetadataOptions(metadata_high_watermark=1))
    assert known.of_sources == {} and len(known.warnings) == 1
    assert "offset 0: found b'no metadata'" in known.warnings[0]
    with pytest.raises(UsageError, match=r"--cluster-metadata .*offset 0: found b'no metadata'"):
        read_known_topics((source,), options=MetadataOptions(cluster_metadata=str(log_dir), metadata_high_watermark=1))


def test_a_copy_that_cannot_be_read_is_told_beside_one_that_counts_in_its_place(tmp_path: Path) -> None:
    """Which one counts, and how far it goes; of the same cluster alone."""
    torn, good = log_dir_of_t(tmp_path / "torn"), log_dir_of_t(tmp_path / "good", node_id=2)
    other = log_dir_of_t(tmp_path / "other", cluster_id="other")
    (torn / METADATA_DIRECTORY / "00000000000000000000.log").write_bytes(data(0, [b"no metadata"]))
    known = read_known_topics([Source(each.name, each) for each in (torn, other, good)])
    assert known.of_sources["torn"].metadata is known.of_sources["good"].metadata
    [warning] = known.warnings
    assert warning.startswith(f"{torn / METADATA_DIRECTORY}: record at offset 0: ")
    assert warning.endswith(
        f"; {good / METADATA_DIRECTORY} counts instead, {_AS_OF}: what was changed after that is not known"
    )
    snapshots = {(3, 1): snapshot([topic("t", ID_OF_T)], 20)}
    write_copy(
        good / METADATA_DIRECTORY, {0: leader_change(0, [1, 2]) + data(1, [topic("u", OTHER_ID)] * 6)}, snapshots
    )
    known = read_known_topics([Source(each.name, each) for each in (torn, other, good)])
    of_good = known.of_sources["good"].metadata
    assert of_good.as_of != of_good.to_end.as_of, "of two voters the snapshot alone is known to be committed"
    [warning] = known.warnings
    assert warning.endswith(
        f" counts instead, as of {of_good.to_end.as_of}, and for topics' settings as of {of_good.as_of}: what was "
        "changed after that is not known"
    )


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
    for name, text in {
        "wrong": "process.roles = broker\nnode.id = one\n",
        "of-node-3": "process.roles = controller, broker\nnode.id = 3\n",
    }.items():
        (tmp_path / name).write_text(text)
    options = MetadataOptions(
        cluster_metadata=None if directory is None else str(tmp_path / directory),
        server_properties=None if file is None else tmp_path / file,
    )
    with pytest.raises(UsageError, match=re.escape(message.format(tmp_path))):
        read_known_topics((Source("s", log_dir_of_t(tmp_path / "a")),), options=options)


@pytest.mark.parametrize("option", ["--server-properties", "--metadata-high-watermark"])
def test_an_option_that_says_nothing_is_a_mistake(tmp_path: Path, option: str) -> None:
    """Nobody has metadata, and without that it is not known what was set while brokers ran."""
    (tmp_path / "1").write_text("process.roles=broker\nnode.id=1\n")
    is_of_file = option == "--server-properties"
    options = MetadataOptions(
        server_properties=tmp_path / "1" if is_of_file else None, metadata_high_watermark=None if is_of_file else 1
    )
    with pytest.raises(UsageError, match=rf"{option} .*1: no source has __cluster_metadata-0 beside"):
        read_known_topics((Source("s", log_dir_of_t(tmp_path / "a", has_metadata=False)),), options=options)


def test_metadata_lies_in_an_object_store_too(store: ObjectStore, tmp_path: Path) -> None:
    """As a source has it, and as an option names it."""
    prefix = "known-topics"
    store.upload(log_dir_of_t(tmp_path / "with"), f"{prefix}/with")
    store.upload(log_dir_of_t(tmp_path / "without", has_metadata=False), f"{prefix}/without")
    where = f"s3://{BUCKET}/{prefix}"
    sources = [source_at(f"{where}/{name}", name) for name in ("with", "without")]
    known = read_known_topics(sources)
    assert known.as_of == f"{where}/with/{METADATA_DIRECTORY} {_AS_OF} (of the same cluster: without)"
    for given in (f"{where}/with", f"{where}/with/{METADATA_DIRECTORY}"):
        named = read_known_topics(sources, options=MetadataOptions(cluster_metadata=given))
        assert [named.topic_id(source.name, "t") for source in sources] == [ID_OF_T, ID_OF_T]
    with pytest.raises(UsageError, match=f"--cluster-metadata {where}/none: no such directory"):
        read_known_topics(sources, options=MetadataOptions(cluster_metadata=f"{where}/none"))
    for name in store.contents(prefix):
        store.delete(f"{prefix}/{name}")


def test_a_source_without_metadata_goes_by_that_of_its_cluster(tmp_path: Path) -> None:
    """That of its own node's other log dir; else that of the node that has read furthest; never another cluster's. The
    sources of a catalog count too.
    """

    def log_dir(name: str, *arguments: Any, end: int | None = None, has_metadata: bool = True) -> Source:
        path = log_dir_of_t(tmp_path / name, *arguments, has_metadata=has_metadata)
        if end is not None:
            values = [config("t", "retention.ms", str(end)), *[config("u", "retention.ms", "1")] * (end - 7)]
            log = (path / METADATA_DIRECTORY / "00000000000000000000.log").read_bytes()
            write_copy(path / METADATA_DIRECTORY, {0: log + data(6, values, 2_000)})
        return Source(name, path)

    without = log_dir("without", has_metadata=False)
    own, near, far, foreign = (
        log_dir("own"),
        log_dir("near", 2, end=8),
        log_dir("far", 3, end=9),
        log_dir("foreign", 1, "other", end=10),
    )
    for others, recorded, expected in (
        ((far, own, near), (), own),
        ((near, far, foreign), (), far),
        ((near,), (foreign, far, own), own),
        ((), (near, foreign), near),
    ):
        known = read_known_topics((without, *others), partial(tuple[Source, ...], recorded))
        of_source = known.of_sources["without"]
        assert of_source.metadata.directory == Path(str(expected.path)) / METADATA_DIRECTORY
        assert of_source.broker.node_id == 1 and of_source.borrowed
        assert f"{expected.path}/{METADATA_DIRECTORY} as of " in str(known.as_of)
        assert str(known.as_of).count("(of the same cluster: without)") == 1
    value = read_known_topics((without, near)).config("without", "t", "retention.ms")
    assert value is not None and value.value == "8"
    assert read_known_topics((without,), lambda: (foreign,)).of_sources == {}


@pytest.mark.parametrize("voters", [[1], [1, 2, 3]])
def test_log_dirs_of_a_broker_that_are_not_at_hand(tmp_path: Path, voters: list[int]) -> None:
    """By what it registered last, also since the last snapshot of several voters; nobody else's."""
    log_dir, ids = log_dir_of_t(tmp_path / "a"), [topic_id(letter) for letter in "xyz"]
    registered = [of_broker("RegisterBrokerRecord", 1, ids[:2]), of_broker("RegisterBrokerRecord", 2, ids[2:])]
    write_copy(log_dir / METADATA_DIRECTORY, {0: leader_change(0, voters) + data(1, registered)})
    known = read_known_topics((Source("s", log_dir),))
    assert known.other_log_dirs(1, ids[:1]) == ids[1:2]
    assert known.other_log_dirs(1, ids[:2]) == known.other_log_dirs(None, []) == []
