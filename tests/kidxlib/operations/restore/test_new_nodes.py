"""Where metadata is written: into what was just formatted, and into nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import PublishError, UsageError
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, write_framed
from kidxlib.operations.restore.new_nodes import read_formatted, write_metadata
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.records.reader import records
from kidxlib.storage.opened_log import LogFile
from tests.kidxlib.operations.restore.formatted_log_dir import (
    FIRST_SNAPSHOT,
    LEVELS,
    formatted_by_4_3,
    formatted_by_4_4,
    levels,
    user,
)
from tests.support.cluster_metadata import snapshot, topic, topic_id

_FORMATS: Final = pytest.mark.parametrize("formatted", [formatted_by_4_3, formatted_by_4_4])


def _topics(count: int, name_bytes: int = 3) -> list[FramedMessage]:
    message = messages_of(CLUSTER_METADATA)["TopicRecord"]
    names = (f"{number:0{name_bytes}d}" for number in range(count))
    return [FramedMessage(message, 0, {"name": name, "topicId": topic_id("a")}) for name in names]


def _batches(path: Path) -> list[BatchHeader]:
    with contextlib.closing(LogFile(str(path))) as log:
        return list(batches(log))


def _values(path: Path) -> list[bytes | None]:
    with contextlib.closing(LogFile(str(path))) as log:
        return [record.value for batch in batches(log) if not batch.is_control for record in records(log, batch)]


@_FORMATS
def test_records_take_the_place_of_the_formatted_ones(tmp_path: Path, formatted: Callable[[Path], Path]) -> None:
    """Between the header and the footer, at offsets without gaps; the file keeps its mode, and no other is there."""
    controller = read_formatted(formatted(tmp_path))
    assert controller.features == LEVELS
    os.chmod(controller.path, 0o640)
    files = sorted(tmp_path.rglob("*"))
    restored = _topics(3)
    write_metadata([controller], restored)
    assert _values(controller.path) == [write_framed(record) for record in restored]
    header, *_, footer = _batches(controller.path)
    assert (header.is_control, footer.is_control, footer.offset_field) == (True, True, 1 + len(restored))
    assert controller.path.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.rglob("*")) == files
    with pytest.raises(UsageError, match="it holds TopicRecord already: if a restore into it is done, start the"):
        read_formatted(tmp_path)


def test_large_metadata_is_cut_into_batches(tmp_path: Path) -> None:
    """Kafka reads none of more than 8 MiB."""
    controller = read_formatted(formatted_by_4_3(tmp_path))
    restored = _topics(80, 200_000)
    write_metadata([controller], restored)
    found = _batches(controller.path)
    assert len(found) == 6
    assert max(batch.size for batch in found) < 8 * 1024 * 1024
    assert [batch.offset_field for batch in found[1:]] == [batch.last_offset + 1 for batch in found[:-1]]
    assert _values(controller.path) == [write_framed(record) for record in restored]


def test_a_file_that_has_changed_stays(tmp_path: Path) -> None:
    controller = read_formatted(formatted_by_4_4(tmp_path))
    other = snapshot(levels({"metadata.version": 31}), 0)
    controller.path.write_bytes(other)
    with pytest.raises(PublishError, match="it has changed since it was read; format the directory anew"):
        write_metadata([controller], _topics(1))
    assert controller.path.read_bytes() == other


def _in_metadata_log(name: str) -> Callable[[Path], None]:
    def add(log_dir: Path) -> None:
        (log_dir / METADATA_DIRECTORY).mkdir(exist_ok=True)
        (log_dir / METADATA_DIRECTORY / name).touch()

    return add


def _rewritten(content: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def rewrite(log_dir: Path) -> None:
        path = log_dir / BOOTSTRAP_SNAPSHOT
        path.write_bytes(content(path.read_bytes()))

    return rewrite


def _both(log_dir: Path) -> None:
    _in_metadata_log(FIRST_SNAPSHOT)(log_dir)
    (log_dir / METADATA_DIRECTORY / FIRST_SNAPSHOT).write_bytes((log_dir / BOOTSTRAP_SNAPSHOT).read_bytes())


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda log_dir: (log_dir / "meta.properties").unlink(), "no meta.properties with cluster.id and node.id"),
        (_in_metadata_log("00000000000000000000.log"), r"a metadata log is in it \(00000000000000000000.log\)"),
        (_in_metadata_log("quorum-state"), r"a metadata log is in it \(quorum-state\)"),
        (_in_metadata_log("00000000000000000007-0000000001.checkpoint"), "a metadata log is in it"),
        (_both, "records are in both"),
        (lambda log_dir: (log_dir / BOOTSTRAP_SNAPSHOT).unlink(), "no feature levels in it"),
        (_rewritten(lambda content: content[:-20]), "no whole file from its header to its footer"),
        (_rewritten(lambda content: b""), "no whole file from its header to its footer"),
        (_rewritten(lambda content: content[:150] + bytes([content[150] ^ 1]) + content[151:]), "wrong checksum"),
        (_rewritten(lambda _: snapshot([user("u")], 0)), "no metadata.version in it"),
        (_rewritten(lambda _: snapshot([*levels(), topic("t", topic_id("a"))], 0)), "it holds TopicRecord already"),
    ],
)
def test_what_is_not_just_formatted_is_refused(tmp_path: Path, spoil: Callable[[Path], None], says: str) -> None:
    spoil(formatted_by_4_3(tmp_path))
    with pytest.raises(UsageError, match=says) as refused:
        read_formatted(tmp_path)
    assert "format" in str(refused.value), "what to do"
