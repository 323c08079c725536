"""`kidx verify --tiered` on a bucket in an S3 store, and on a cluster that goes on working meanwhile."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.segment_files import TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.local_layout import STORAGE_DIRECTORY, list_partitions
from kidxlib.messages.remote_log_metadata import SegmentState
from tests.docs.pages import PROJECT
from tests.support.audits import verified
from tests.support.object_store import ObjectStore
from tests.support.tiered_sites import RemoteSegment, Site

_SAMPLE: Final = PROJECT / "samples" / "tiered"
_TOPIC: Final = "payments"
_STARTED, _DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(_SAMPLE / STORAGE_DIRECTORY, Path(shutil.copytree(_SAMPLE / "log-dir", tmp_path / "log-dir")))


@pytest.fixture
def url(site: Site, store: ObjectStore) -> Iterator[str]:
    """The bucket's."""
    url = store.upload(site.bucket, f"tiered/{STORAGE_DIRECTORY}")
    store.requests.clear()
    yield url.removesuffix(f"/{STORAGE_DIRECTORY}")
    for name in list(store.contents("tiered")):
        store.delete(f"tiered/{name}")


def _audited(url: str, site: Site, level: str, code: int = 0) -> dict[str, Any]:
    return verified("--tiered", url, "--tiered-metadata", site.log_dir, "--level", level, code=code)


def _keys(segment: RemoteSegment) -> list[str]:
    return [f"tiered/{STORAGE_DIRECTORY}/{segment.directory.name}/{path.name}" for path in segment.objects().values()]


def test_a_bucket_in_a_store(site: Site, url: str, store: ObjectStore) -> None:
    """A listing asks for names alone, other levels for what they read; a loss is found, and nothing is written."""
    of_folder = verified("--tiered", site.bucket, "--tiered-metadata", site.log_dir, "--level", "full", code=0)
    before = store.contents("tiered")
    for level in ("listing", "indexes", "full"):
        store.requests.clear()
        found = _audited(url, site, level)
        assert {name: found[name] for name in ("findings", "segments", "objects")} == {
            "findings": [],
            "segments": of_folder["segments"],
            "objects": of_folder["objects"],
        }
        assert found["requests"]["list"] and found["requests"]["put"] == 0
        assert bool(found["requests"]["get"]) == (level != "listing")
    segment = next(each for each in site.segments(_TOPIC) if TRANSACTION_INDEX_SUFFIX in each.objects())
    [key] = [each for each in _keys(segment) if each.endswith(TRANSACTION_INDEX_SUFFIX)]
    store.delete(key)
    [finding] = _audited(url, site, "full", code=3)["findings"]
    assert (finding["reason"], finding["object"]) == ("missing", f"s3://archive/{key}")
    assert store.contents("tiered").keys() == before.keys() - {key.removeprefix("tiered/")}


def test_what_is_deleted_meanwhile_is_not_missed(site: Site, url: str, store: ObjectStore) -> None:
    """A broker deletes a segment after the metadata was read, and before the partitions are listed: by the metadata of
    then it is missing, and the second look knows better.
    """
    partitions = len(list_partitions(site.bucket))
    assert _audited(url, site, "listing")["findings"] == []
    lists = len(store.requests)
    segment, asked, one_by_one = site.segments(_TOPIC)[0], itertools.count(1), threading.Lock()

    def before(method: str, key: str) -> None:
        with one_by_one:
            if next(asked) == lists - partitions + 1:
                segment.update(_STARTED, _DELETED, at_ms=site.last_ms())
                for each in _keys(segment):
                    store.delete(each)

    store.before = before
    try:
        found = _audited(url, site, "listing")
    finally:
        store.before = None
    assert next(asked) > lists + 1, "it was not listed again"
    assert found["findings"] == []
    assert _audited(url, site, "listing")["segments"]["DELETE_SEGMENT_FINISHED"]["segments"] == 1
