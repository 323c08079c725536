"""A log that is not in memory is read by ranges, or at once if it is small, and the page cache stays as it was. An
object that is replaced while it is read is a log that has changed.
"""

from __future__ import annotations

import mmap
import os
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.errors import LogChangedError
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage import log_bytes
from kidxlib.storage.log_bytes import RANGE_BYTES, Access, RangedLog, WholeLog
from kidxlib.storage.opened_log import open_local_log, opened_log
from tests.kidxlib.recovery.test_recover import assert_same
from tests.support import page_cache
from tests.support.logs.batches import FILLER, Batch, encode
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


#: More than three ranges, and batches of all lengths across their ends.
_LOG: Final = b"".join(encode(0, [Batch(body=FILLER[number % 900 :]) for number in range(4000)]))

#: Less than a range.
_SMALL: Final = b"".join(encode(0, [Batch(body=FILLER[number:]) for number in range(100)]))

#: The kernel itself takes a page now and then.
_TRIES: Final = 5


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return _mostly_on_disk(tmp_path, _LOG)


def _mostly_on_disk(directory: Path, content: bytes) -> Path:
    """A log of which a part in the midst is in memory."""
    path = directory / f"{0:020d}.log"
    path.write_bytes(content)
    page_cache.drop(path)
    if _cached(path).all():
        pytest.skip("the file system of the temporary directory keeps its files in memory, or does not tell")
    with open_local_log(str(path)) as (descriptor, version):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no page besides
        os.pread(descriptor, version.size // 3, version.size // 4)
    return path


def _cached(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    pages = np.zeros(-(-path.stat().st_size // mmap.PAGESIZE), np.bool_)
    pages[list(page_cache.resident(path))] = True
    return pages


@pytest.mark.parametrize("content", [_LOG, _SMALL], ids=["ranges", "at-once"])
def test_the_page_cache_stays_as_it_was(content: bytes, tmp_path: Path) -> None:
    assert 100 * mmap.PAGESIZE < len(_SMALL) < RANGE_BYTES < len(_LOG) / 3
    expected = recover(WholeLog(np.frombuffer(content, np.uint8)), 0, RecoverOptions())
    for _ in range(_TRIES):
        log = _mostly_on_disk(tmp_path, content)
        before = _cached(log)
        assert 0.2 < before.mean() < 0.5
        with opened_log(str(log)) as opened:
            cold = opened.log(use_mmap=True, access=Access.SEQUENTIAL)
            assert isinstance(cold, RangedLog) == (content is _LOG)
            assert_same(recover(cold, 0, RecoverOptions()), expected)
            during = _cached(log)
        if np.array_equal(_cached(log), before):
            break
    np.testing.assert_array_equal(_cached(log), before)
    if content is _SMALL:
        assert during.all(), "it was not read"
    else:  # pages are dropped right after the scan has passed them, not at its end
        last_range = len(during) - 2 * RANGE_BYTES // mmap.PAGESIZE
        np.testing.assert_array_equal(during[:last_range], before[:last_range])


@pytest.mark.parametrize("goes_past", [True, False])
def test_a_log_on_the_disk_is_read_past_the_page_cache(
    goes_past: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that is not possible, its pages are dropped again."""
    if not goes_past:
        monkeypatch.setattr(log_bytes, "_FLAG", None)
    for content in (_LOG, _LOG[:RANGE_BYTES]):
        log = _mostly_on_disk(tmp_path, content)
        page_cache.drop(log)
        with opened_log(str(log)) as opened:
            recovered = recover(opened.log(use_mmap=True, access=Access.SEQUENTIAL), 0, RecoverOptions())
            assert _cached(log).any() != goes_past
        assert not _cached(log).any()
        assert_same(recovered, recover(WholeLog(np.frombuffer(content, np.uint8)), 0, RecoverOptions()))


def test_a_log_in_memory_is_mapped(log: Path) -> None:
    log.read_bytes()
    with opened_log(str(log)) as opened:
        warm = opened.log(use_mmap=True, access=Access.SEQUENTIAL)
        assert isinstance(warm, WholeLog)
        recover(warm, 0, RecoverOptions())
    assert _cached(log).all()


def test_a_log_that_shrinks_before_it_is_mapped_has_changed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(_LOG[:10_000])
    with opened_log(str(path)) as opened:
        os.truncate(path, 10)
        with pytest.raises(LogChangedError, match="had 10000 bytes when it was opened and has fewer now"):
            opened.log(use_mmap=True, access=Access.SEQUENTIAL)
