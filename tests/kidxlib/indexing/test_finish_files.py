"""Directories of an object store are listed ahead; each has its own names, in whatever order they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import PublishError
from kidxlib.indexing.finish_files import Listings
from kidxlib.storage.location import Directory
from kidxlib.storage.store.requests import AT_ONCE
from tests.support.object_store import BUCKET, ObjectStore


def test_each_has_its_own_names(store: ObjectStore, tmp_path: Path) -> None:
    directories = [Directory(f"s3://{BUCKET}/ahead", f"topic-{number}") for number in range(AT_ONCE + 3)]
    for number in range(1, AT_ONCE + 3):  # the first does not exist
        store.put(f"ahead/topic-{number}/{number}", b"")
    store.gather(AT_ONCE, lambda method, key: not key)
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "a").touch()
    with Listings(directories) as listings:
        assert listings.names_in(directories[0]) == []
        assert listings.names_in(Directory(str(tmp_path), "topic-0")) == ["a"]
        for number in (1, 2, 5, AT_ONCE + 2, 3, 4):  # some are left out, and some come again
            assert listings.names_in(directories[number]) == [f"{number}"]
    store.before = lambda method, key: 403
    with Listings(directories) as listings, pytest.raises(PublishError, match="ahead/topic-0: not listed"):
        listings.names_in(directories[0])
