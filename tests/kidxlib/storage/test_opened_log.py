"""An object that is replaced while it is read is a log that has changed."""

from __future__ import annotations

from functools import partial

import pytest

from kidxlib.errors import LogChangedError
from kidxlib.storage.opened_log import opened_log
from tests.support.object_store import BUCKET, ObjectStore


def test_a_range_behind_the_end_of_what_is_there_by_now_is_a_change(store: ObjectStore) -> None:
    store.put("shorter/log", bytes(1_000))
    with opened_log(f"s3://{BUCKET}/shorter/log") as opened:
        log = opened.log(use_mmap=False, chunk_bytes=100)
        log.window(0)
        store.put("shorter/log", b"1")
        for read in (partial(log.window, 500), partial(log.read, 500, 200)):
            with pytest.raises(LogChangedError, match="log ends at byte 500, it had 1000 bytes when opened"):
                read()
        with pytest.raises(LogChangedError, match="1000 bytes before the scan, 1 after; the object was replaced"):
            opened.ensure_unchanged()


def test_an_object_without_an_etag_is_read_by_its_size_and_time(store: ObjectStore) -> None:
    """Some stores have none of what was put below them as a file."""
    (store.objects / "no-etag").mkdir()
    (store.objects / "no-etag" / "log").write_bytes(b"1234")
    with opened_log(f"s3://{BUCKET}/no-etag/log") as opened:
        assert bytes(opened.log(use_mmap=False).read(0, 4)) == b"1234"
        opened.ensure_unchanged()
