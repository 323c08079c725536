"""Files are renamed as Kafka renames deleted ones, then removed; no link is followed and no file is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kidxlib.errors import PublishError
from kidxlib.storage.location import Directory
from kidxlib.storage.remover import Remover


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    """A partition's directory with a log, a directory and a link to a file of somebody else."""
    directory = tmp_path / "logs" / "topic-0"
    (directory / "inner").mkdir(parents=True)
    (directory / "a.log").write_bytes(b"log")
    (tmp_path / "others").write_bytes(b"of somebody else")
    (directory / "link").symlink_to(tmp_path / "others")
    return Directory(str(tmp_path / "logs"), "topic-0")


@pytest.fixture
def remover() -> Iterator[Remover]:
    with Remover() as remover:
        yield remover


def test_a_file_is_renamed_and_then_removed(place: Directory, remover: Remover) -> None:
    remover.mark_deleted(place, "a.log")
    assert (Path(str(place)) / "a.log.deleted").read_bytes() == b"log"
    remover.flush()
    for _ in range(2):  # the second time there is no such file
        remover.remove(place, "a.log.deleted")
    assert remover.names(place) == {"inner", "link"}


def test_a_file_that_has_the_name_already_is_not_replaced(place: Directory, remover: Remover) -> None:
    (Path(str(place)) / "a.log.deleted").write_bytes(b"first")
    with pytest.raises(PublishError, match=r"topic-0/a\.log\.deleted: in the way"):
        remover.mark_deleted(place, "a.log")
    assert (Path(str(place)) / "a.log").read_bytes() == b"log"
    assert (Path(str(place)) / "a.log.deleted").read_bytes() == b"first"


def test_only_regular_files_are_files(place: Directory, remover: Remover) -> None:
    assert {name: status.st_size for name, status in remover.files(place).items()} == {"a.log": 3}
    assert remover.status(place, "link") is None
    assert remover.status(place, "inner") is None
    assert remover.status(place, "not there") is None


def test_a_link_is_removed_and_not_what_it_leads_to(place: Directory, remover: Remover, tmp_path: Path) -> None:
    remover.remove(place, "link")
    assert (tmp_path / "others").read_bytes() == b"of somebody else"


def test_a_directory_that_is_a_link_is_refused(place: Directory, remover: Remover, tmp_path: Path) -> None:
    (tmp_path / "logs" / "link-0").symlink_to(tmp_path / "logs" / "topic-0")
    link = Directory(place.root, "link-0")
    for ask in (remover.names, remover.files, remover.is_there):
        with pytest.raises(PublishError, match="link-0: a part of the path is a symbolic link"):
            ask(link)
    for do in (remover.mark_deleted, remover.remove, remover.status):
        with pytest.raises(PublishError, match=r"link-0/a\.log: not .*symbolic link"):
            do(link, "a.log")
    assert (Path(str(place)) / "a.log").read_bytes() == b"log"


def test_a_directory_that_is_not_there_has_no_files_and_nothing_is_made(place: Directory, remover: Remover) -> None:
    away = Directory(place.root, "away-0")
    assert (remover.names(away), remover.files(away), remover.is_there(away)) == (set(), {}, False)
    remover.remove(away, "a.log")
    with pytest.raises(PublishError, match=r"away-0/a\.log: not renamed"):
        remover.mark_deleted(away, "a.log")
    assert not Path(str(away)).exists() and remover.is_there(place)


def test_a_directory_is_not_removed(place: Directory, remover: Remover) -> None:
    with pytest.raises(PublishError, match=r"topic-0/inner: not removed: .*; run again"):
        remover.remove(place, "inner")
