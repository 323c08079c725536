"""Kafka log dirs to build from, what a build leaves, and Kafka's own bytes to compare with."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from kidxlib.errors import KidxError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.storage.publisher import STAGING_PREFIX, STAGING_SUFFIX
from tests.support import page_cache
from tests.support.logs import golden
from tests.support.logs.batches import Batch, encode

#: What an index file may have held before a build: zeros, as a broker leaves it where it was stopped hard.
OLD_INDEX: Final = bytes(64 * 1024)

_DAY_NS: Final = 24 * 3600 * 10**9
_FINAL_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def is_final(name: str) -> bool:
    """Whether a file of that name is an index for everybody to read."""
    return name.endswith(_FINAL_SUFFIXES) and not name.startswith(".")


def is_staging(name: str) -> bool:
    """Whether it is an index that is being written."""
    return name.startswith(STAGING_PREFIX) and name.endswith(STAGING_SUFFIX)


def link_samples(log_dir: Path, copies: int, topics: Iterable[str] | None = None) -> Path:
    """Make a log dir of the sample's partitions, `copies` times each, of hard links to one copy of the files.

    Args:
        topics: only these.
    """
    for sample in sorted(golden.SAMPLES.iterdir()):
        topic = sample.name.rpartition("-")[0]
        if topics is None or topic in topics:
            first = shutil.copytree(sample, log_dir / f"{topic}-0")
            for copy in range(1, copies):
                shutil.copytree(first, log_dir / f"{topic}-{copy}", copy_function=os.link)
    return log_dir


def settings_of_waves(log_dir: Path) -> Path:
    """A settings file beside a log dir, by which a build of that has about four waves, and puts its tables in order."""
    size = sum(log.stat().st_size for log in log_dir.glob("*/*.log"))
    path = log_dir.with_name("settings.toml")
    path.write_text(f"[build]\nwave_bytes = {size // 3}\n[tables]\nsmall_files_max = 1\n")
    return path


def copy_tree(log_dir: Path, to: Path) -> Path:
    """The same log dir elsewhere on the same file system, of hard links."""
    return Path(shutil.copytree(log_dir, to, copy_function=os.link, symlinks=True))


def kafkas_indexes(log_dir: Path) -> dict[str, bytes]:
    """What Kafka's own recovery writes for a log dir made by `link_samples`, by path below it."""
    indexes: dict[str, bytes] = {}
    for segment in golden.committed():
        if segment.log.is_relative_to(golden.SAMPLES):
            topic = segment.log.parent.name.rpartition("-")[0]
            for partition in log_dir.glob(f"{topic}-*"):
                indexes |= {f"{partition.name}/{name}": content for name, content in segment.indexes.items()}
    return indexes


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or link as it stands. The content of logs is left out: `LogStates` looks after that."""

    mode: int
    owner: int
    group: int
    content: bytes | str | None

    @classmethod
    def of(cls, path: Path) -> Entry:
        status = path.lstat()
        content: bytes | str | None = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and path.suffix != ".log":
            content = path.read_bytes()
        return cls(status.st_mode, status.st_uid, status.st_gid, content)


def snapshot(root: Path) -> dict[str, Entry]:
    """Everything below a directory, and the directory itself, by path below it. Links are not followed."""
    return {str(path.relative_to(root)): Entry.of(path) for path in (root, *root.rglob("*"))}


def indexes(root: Path) -> dict[str, bytes]:
    """The content of every index file under its final name, by path below `root`."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if is_final(path.name) and path.is_file()
    }


def staging_files(root: Path) -> list[Path]:
    """What builds have not put under a final name."""
    return [path for path in root.rglob("*") if is_staging(path.name)]


def age(files: Iterable[Path]) -> None:
    """Make files look older than any run that is still going."""
    yesterday = time.time_ns() - _DAY_NS - 3600 * 10**9
    for path in files:
        os.utime(path, ns=(yesterday, yesterday), follow_symlinks=False)


def assert_whole(found: Mapping[str, bytes], expected: Mapping[str, bytes], old: bytes | None = None) -> None:
    """Each index is the expected one, or the one that stood there before: never a part, never another's."""
    for name, content in found.items():
        assert content == expected[name] or content == old, f"{name}: {len(content)} bytes, {len(expected[name])} good"


def assert_no_offset_index_alone(found: Mapping[str, bytes]) -> None:
    """No `.index` stands without its `.timeindex`.

    A broker that starts then makes an empty time index and never rebuilds it; a lone `.timeindex` it rebuilds.
    """
    alone = [
        name
        for name in found
        if name.endswith(OFFSET_INDEX_SUFFIX)
        and name.removesuffix(OFFSET_INDEX_SUFFIX) + TIME_INDEX_SUFFIX not in found
    ]
    assert not alone, f".index without .timeindex: {alone}"


def assert_each_index_has_its_transaction_index(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """No `.index` stands without the `.txnindex` that belongs to it: to a broker, no transaction would be aborted."""
    missing = [
        name
        for name in expected
        if name.endswith(TRANSACTION_INDEX_SUFFIX)
        and name not in found
        and name.removesuffix(TRANSACTION_INDEX_SUFFIX) + OFFSET_INDEX_SUFFIX in found
    ]
    assert not missing, f".index without .txnindex: {missing}"


@dataclass(frozen=True, slots=True)
class LogStates:
    """Every log below a directory as it was, to show later that nobody wrote to one."""

    root: Path
    states: Mapping[str, tuple[int, ...]]
    contents: Mapping[int, bytes]

    #: Content is compared too up to this size.
    COMPARED_BYTES = 1 << 22

    @classmethod
    def of(cls, root: Path) -> LogStates:
        states, contents = {}, {}
        for path in root.rglob("*.log"):
            status = path.lstat()
            states[str(path.relative_to(root))] = (
                status.st_ino,
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_size,
                status.st_mtime_ns,
            )
            if stat.S_ISREG(status.st_mode) and status.st_size <= cls.COMPARED_BYTES and status.st_ino not in contents:
                contents[status.st_ino] = path.read_bytes()
        return cls(root, states, contents)

    def assert_unchanged(self) -> None:
        assert LogStates.of(self.root) == self


def small_log(batches: int = 40, base_offset: int = 0) -> bytes:
    """A sound log of that many v2 batches of 100 bytes, a second apart."""
    return b"".join(encode(base_offset, [Batch(timestamp=1_700_000_000_000 + 1000 * n) for n in range(batches)]))


def write_log(directory: Path, base_offset: int, content: bytes) -> Path:
    """Write a segment's log into a partition's directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / segment_file(base_offset, ".log")
    log.write_bytes(content)
    return log


def topic_log(log_dir: Path, base_offset: int, *batches: bytes, partition: int = 0) -> Path:
    """Write a segment's log of a topic called `topic`."""
    return write_log(log_dir / f"topic-{partition}", base_offset, b"".join(batches))


def lying_log(directory: Path, base_offset: int, size: int, sound: bytes = b"", claimed: int | None = None) -> Path:
    """A sparse log of `size` bytes: `sound` batches, and a v2 header that claims all the rest, with a wrong checksum.

    Checking that means reading all of it, which takes a moment: time to do something to the file or its reader.

    Args:
        claimed: what the header's size field says, if not that.
    """
    length = size - len(sound) - layouts.LOG_OVERHEAD if claimed is None else claimed
    log = write_log(directory, base_offset, sound + _header(base_offset, length))
    os.truncate(log, size)
    return log


@contextlib.contextmanager
def in_memory(*logs: Path) -> Iterator[None]:
    """Bring logs into the page cache, as only what is there is mapped, and keep them there while the context lasts.

    Where this user may not lock so much memory, the kernel may take them away before they are looked at.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(page_cache.held_in_memory(*logs))
        except KidxError:
            for log in logs:
                _read(log)
        yield


def _read(log: Path) -> None:
    with log.open("rb", buffering=0) as file:
        room = bytearray(1 << 22)
        while file.readinto(room):
            pass


def slow_log(directory: Path, base_offset: int, size: int, sound: bytes = b"") -> Path:
    """A sparse log of `size` bytes that is sound: `sound` batches, and a v2 batch that takes all the rest.

    As with `lying_log`, checking it takes a moment, but the scan does not end there.
    """
    length = size - len(sound) - layouts.LOG_OVERHEAD
    covered = layouts.field_position(layouts.BATCH_V2, "attributes")
    crc = google_crc32c.value(_header(base_offset, length)[covered:])
    zeros = bytes(1 << 20)
    left = size - len(sound) - layouts.BATCH_V2.itemsize
    while left > 0:
        crc = google_crc32c.extend(crc, zeros[:left])
        left -= len(zeros)
    log = write_log(directory, base_offset, sound + _header(base_offset, length, crc))
    os.truncate(log, size)
    return log


def _header(base_offset: int, length: int, crc: int = 0xBAD) -> bytes:
    """The header of a v2 batch that is far away from the segment's first ones."""
    offset = base_offset + 2**20
    return struct.pack(">qiibIhiqqqhii", offset, length, 0, layouts.MAGIC_V2, crc, 0, 0, 0, 0, -1, -1, -1, 1)
