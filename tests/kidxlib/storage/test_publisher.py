"""Files are put in place whole or not at all, on a disk and in a real S3 store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kidxlib.errors import PublishError
from kidxlib.storage.location import Directory
from kidxlib.storage.publisher import (
    STAGING_PREFIX,
    STAGING_SUFFIX,
    FileOwner,
    Published,
    Publisher,
    is_staging,
    publish_if,
    sweep_staging_files,
)
from kidxlib.storage.small_files import read_end, read_file
from kidxlib.storage.store.requests import AT_ONCE
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.unlistable import unlistable_directory


def test_an_error_publishes_nothing_and_a_write_that_fails_leaves_what_was_there(store: ObjectStore) -> None:
    directory = Directory(f"s3://{BUCKET}/failing", "topic-0")
    with pytest.raises(ZeroDivisionError), Publisher() as publisher:
        publisher.stage(directory, "a", b"content")
        _ = 1 // 0
    assert store.counted("PUT", "POST") == []
    store.put("failing/topic-0/a", b"before")
    store.before = lambda method, key: 403 if method == "PUT" else None
    with Publisher() as publisher:
        assert publisher.stage(directory, "a", b"content") is Published.WRITTEN
        with pytest.raises(
            PublishError, match=r"failing/topic-0/a: not written: .*; the file that was there is unchanged"
        ):
            publisher.commit()
    assert store.contents("failing") == {"topic-0/a": b"before"}


def test_large_and_empty_files_are_whole_objects_too(store: ObjectStore) -> None:
    """From 10 MiB on in parts, which appear together."""
    directory = Directory(f"s3://{BUCKET}/sizes", "topic-0")
    contents = {str(size): np.arange(size // 4, dtype=np.int32).tobytes() for size in (0, 4, 10 << 20, 11 << 20)}
    with Publisher() as publisher:
        for name, content in contents.items():
            assert publisher.stage(directory, name, content) is Published.WRITTEN
        publisher.commit()
        assert store.contents("sizes/topic-0") == contents
        for name, content in contents.items():
            assert publisher.stage(directory, name, content) is Published.UNCHANGED
        publisher.remove(directory, "4")
        publisher.remove(directory, "not there")
    assert set(store.contents("sizes/topic-0")) == set(contents) - {"4"}
    assert (read_file(directory, "4"), read_file(directory, "0"), read_end(directory, str(11 << 20), 8)) == (
        None,
        b"",
        contents[str(11 << 20)][-8:],
    )


def test_objects_are_compared_and_put_at_once_those_of_a_segment_in_order(store: ObjectStore) -> None:
    """The offset index of a segment is never there without its time index, also where that cannot be written."""
    directory = Directory(f"s3://{BUCKET}/many.topics", "my.topic-0")
    names = [f"{number}{suffix}" for number in range(AT_ONCE) for suffix in (".timeindex", ".index")]
    with Publisher() as publisher:
        store.gather(AT_ONCE, lambda method, key: method == "HEAD")
        outcomes = [publisher.begin_staging(directory, name, name.encode()) for name in names]
        assert (publisher.staged_files, publisher.staged_bytes) == (len(names), sum(map(len, names)))
        assert [outcome() for outcome in outcomes] == [Published.WRITTEN] * len(names)
        store.gather(AT_ONCE, lambda method, key: method == "PUT" and key.endswith(".timeindex"))
        store.requests.clear()
        publisher.commit()
        put = [each.key.rpartition("/")[2] for each in store.counted("PUT")]
        assert sorted(put) == sorted(names)
        assert all(put.index(f"{number}.timeindex") < put.index(f"{number}.index") for number in range(AT_ONCE))

        store.before = lambda method, key: 403 if method == "PUT" and key.endswith("/3.timeindex") else None
        outcomes = [publisher.begin_staging(directory, name, b"other") for name in names[:10]]
        with pytest.raises(
            PublishError, match=r"my.topic-0/3.timeindex: not written: .*; the file that was there is unchanged"
        ):
            publisher.commit()
    found = store.contents("many.topics/my.topic-0")
    assert (found["3.timeindex"], found["3.index"]) == (b"3.timeindex", b"3.index")
    assert all(found[name] in (name.encode(), b"other") for name in names)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    """A partition's directory with one index file, below a root."""
    (tmp_path / "index" / "topic-0").mkdir(parents=True)
    (tmp_path / "index" / "topic-0" / "a").write_bytes(b"before")
    return Directory(str(tmp_path / "index"), "topic-0")


def test_a_reader_sees_what_was_there_until_all_is_committed(place: Directory) -> None:
    with Publisher() as publisher:
        for name in ("a", "b"):
            assert publisher.stage(place, name, b"new") is Published.WRITTEN
            seen = contents(Path(str(place)))
            assert {name: seen[name] for name in seen if not is_staging(name)} == {"a": b"before"}
        publisher.commit()
        assert contents(Path(str(place))) == {"a": b"new", "b": b"new"}


def test_an_error_before_the_commit_leaves_no_file(place: Directory) -> None:
    with pytest.raises(ZeroDivisionError), Publisher() as publisher:
        publisher.stage(place, "a", b"new")
        _ = 1 // 0
    assert contents(Path(str(place))) == {"a": b"before"}


def test_a_disk_that_gives_back_other_bytes_changes_nothing(place: Directory) -> None:
    """One file of two is spoilt: neither gets its name."""
    with Publisher() as publisher:
        publisher.stage(place, "a", b"new")
        publisher.stage(place, "b", b"new")
        (spoilt,) = Path(str(place)).glob(f"*-b{STAGING_SUFFIX}")
        spoilt.write_bytes(b"nEw")
        with pytest.raises(PublishError, match="topic-0/b: it does not read back as it was written"):
            publisher.commit()
    assert contents(Path(str(place))) == {"a": b"before"}


def test_a_file_with_the_same_bytes_is_not_touched(place: Directory) -> None:
    before = (Path(str(place)) / "a").stat()
    with Publisher() as publisher:
        assert publisher.stage(place, "a", b"before") is Published.UNCHANGED
        publisher.commit()
    after = (Path(str(place)) / "a").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_link_is_followed(place: Directory, tmp_path: Path) -> None:
    """Neither of a directory, nor under a final name: there the link is replaced, not what it leads to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"kept")
    (tmp_path / "index" / "link-0").symlink_to(elsewhere)
    with Publisher() as publisher, pytest.raises(PublishError, match=r"link-0/a: not written: .*symbolic link"):
        publisher.stage(Directory(place.root, "link-0"), "a", b"new")
    (Path(str(place)) / "b").symlink_to(elsewhere / "kept")
    with Publisher() as publisher:
        publisher.stage(place, "b", b"new")
        publisher.commit()
    assert contents(elsewhere) == {"kept": b"kept"}
    assert not (Path(str(place)) / "b").is_symlink() and (Path(str(place)) / "b").read_bytes() == b"new"


def test_a_new_file_has_the_owner_and_the_mode_that_were_asked_for(place: Directory) -> None:
    with Publisher() as publisher:
        publisher.stage(place, "a", b"new", FileOwner(os.getuid(), os.getgid(), 0o640))
        publisher.commit()
    status = (Path(str(place)) / "a").stat()
    assert FileOwner.of(status) == FileOwner(os.getuid(), os.getgid(), 0o640)


def test_only_old_staging_files_are_swept(place: Directory) -> None:
    directory = Path(str(place))
    names = {f"{STAGING_PREFIX}1-a{STAGING_SUFFIX}": 1, f"{STAGING_PREFIX}2-a{STAGING_SUFFIX}": 3}
    names |= {f"a{STAGING_SUFFIX}": 1, f"{STAGING_PREFIX}a": 1}
    for name, seconds in names.items():
        (directory / name).touch()
        os.utime(directory / name, (seconds, seconds))
    assert sweep_staging_files(place, 2 * 10**9) == 1
    assert set(names) - set(contents(directory)) == {f"{STAGING_PREFIX}1-a{STAGING_SUFFIX}"}
    assert sweep_staging_files(Directory(place.root, "not there"), 2 * 10**9) == 0
    with unlistable_directory() as directory:
        assert sweep_staging_files(Directory(str(directory.parent), directory.name), 2 * 10**9) == 0


def _as_seen(seen: bytes | None) -> Callable[[bytes | None], bool]:
    return lambda content: content == seen


def test_a_file_is_put_only_where_it_is_as_it_was_seen(place: Directory) -> None:
    path = Path(str(place)) / "free"
    assert publish_if(place, "free", b"new", _as_seen(b"old")) is Published.KEPT
    assert publish_if(place, "free", b"new", _as_seen(None)) is Published.WRITTEN
    assert publish_if(place, "free", b"new", _as_seen(None)) is Published.UNCHANGED
    assert publish_if(place, "free", b"newer", _as_seen(None)) is Published.KEPT
    owner = FileOwner(os.getuid(), os.getgid(), 0o640)
    assert publish_if(place, "free", b"newer", _as_seen(b"new"), owner) is Published.WRITTEN
    assert (path.read_bytes(), FileOwner.of(path.stat())) == (b"newer", owner)


@pytest.mark.parametrize("before", [None, b"old"])
def test_what_somebody_else_writes_while_a_file_is_staged_stays(place: Directory, before: bytes | None) -> None:
    """It comes after we have looked, before ours gets its name."""
    path = Path(str(place)) / "free"
    if before is not None:
        path.write_bytes(before)

    def looks(content: bytes | None) -> bool:
        if content != before:
            return False
        path.write_bytes(b"theirs")
        return True

    assert publish_if(place, "free", b"ours", looks) is Published.KEPT
    assert path.read_bytes() == b"theirs"
    assert not [name for name in contents(path.parent) if is_staging(name)]


def test_nothing_is_put_into_a_directory_that_is_not_there(place: Directory) -> None:
    with pytest.raises(PublishError, match="not there/a: not written: No such file or directory"):
        publish_if(Directory(place.root, "not there"), "a", b"new", _as_seen(None))
