"""A place that a user names is a path or an object, and nothing in between."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from kidxlib.errors import UsageError
from kidxlib.storage.location import as_location, files_in, given_location, is_directory, is_inside, location
from kidxlib.storage.store.s3 import ObjectPath, ObjectStatus


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("s3://bucket", "bucket"),
        ("s3://bucket/", "bucket"),
        ("s3://bucket/a b/ü+%2F//", "bucket/a b/ü+%2F"),
        ("s3://b.u-0/a", "b.u-0/a"),
    ],
)
def test_a_url_is_an_object(text: str, key: str) -> None:
    assert given_location("--source ", text) == ObjectPath(key)
    assert location(f"s3://{key}") == ObjectPath(key)


def test_a_path_that_was_listed_keeps_its_status() -> None:
    """An object's size came with the listing: it is not asked for once more."""
    listed = ObjectPath("bucket/a", ObjectStatus(1, 2))
    assert as_location(listed) is listed
    assert as_location("s3://bucket/a") == listed
    assert [as_location(path) for path in ("a/b", Path("a/b"), PurePath("a/b"))] == [Path("a/b")] * 3


@pytest.mark.parametrize("text", ["a", "/a/b", "", ".", "a/b://c", "s3:/bucket/a"])
def test_what_is_no_url_is_a_path(text: str) -> None:
    assert given_location("--source ", text) is None
    assert location(text) == Path(text)


@pytest.mark.parametrize(
    "text",
    [
        *("s3://", "s3:///a", "s3://B/a", "s3://bu/a", "s3://-bucket/a", "s3://bucket-/a", f"s3://{'b' * 64}/a"),
        *("s3://bucket//a", "s3://bucket/a/../b", "s3://bucket/./a", "S3://bucket/a", "s3a://bucket/a", "file:///a"),
    ],
)
def test_another_url_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        given_location("--source ", text)
    assert str(raised.value) == f"--source {text}: expected the path of a directory, or s3://<bucket>/<prefix>"


def test_a_directory_with_a_longer_name_is_not_inside() -> None:
    assert is_inside("/a/b", "/a/b") and is_inside("/a/b/c", "/a/b/") and is_inside(Path("/a/b"), "/a")
    assert not is_inside("/a/bc", "/a/b") and not is_inside("/a", "/a/b")
    assert is_inside(ObjectPath("bucket/a/b"), ObjectPath("bucket/a"))
    assert not is_inside(ObjectPath("bucket/ab"), ObjectPath("bucket/a"))


def test_directories_and_files_are_told_apart_through_links(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    for name in ("directory", "file", "itself", "nowhere"):
        (tmp_path / f"{name}-link").symlink_to(tmp_path / (f"{name}-link" if name == "itself" else name))
    directories = {entry.name for entry in os.scandir(tmp_path) if is_directory(entry)}
    assert directories == {"directory", "directory-link"}
    (tmp_path / "itself-link").unlink()
    assert files_in(tmp_path) == {name: tmp_path / name for name in ("file", "file-link")}
