"""Audits and repairs of a bucket in an S3 store, and of that of a cluster that goes on working meanwhile."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import kidxlib
from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.log.remote.layout import STORAGE_DIRECTORY, list_bucket_partitions
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.storage.store.client import objects_with_etags
from kidxlib.storage.store.s3 import ObjectPath, open_object
from tests.support.audits import repaired, verified_tiered
from tests.support.files import tree
from tests.support.object_store import Fault, ObjectStore
from tests.support.remote_rows import catalog_at, remote_rows
from tests.support.spark.jobs import run_here
from tests.support.tiered_sites import SAMPLE, RemoteSegment, Site

_TOPIC: Final = "payments"
_STARTED, _DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(SAMPLE.bucket, Path(shutil.copytree(SAMPLE.log_dir, tmp_path / "log-dir")))


@pytest.fixture
def url(site: Site, store: ObjectStore) -> Iterator[str]:
    """The bucket's."""
    url = store.upload(site.bucket, f"tiered/{STORAGE_DIRECTORY}")
    store.requests.clear()
    yield url.removesuffix(f"/{STORAGE_DIRECTORY}")
    for name in list(store.contents("tiered")):
        store.delete(f"tiered/{name}")


def _audited(url: str, site: Site, level: str, code: int = 0) -> dict[str, Any]:
    return verified_tiered(url, "--tiered-metadata", site.log_dir, "--level", level, code=code)


def _keys(segment: RemoteSegment) -> list[str]:
    return [f"tiered/{STORAGE_DIRECTORY}/{segment.directory.name}/{path.name}" for path in segment.objects().values()]


def test_a_bucket_in_a_store(site: Site, url: str, store: ObjectStore) -> None:
    """A listing asks for names alone, other levels for what they read; a loss is found, and nothing is written."""
    of_folder = verified_tiered(site.bucket, "--tiered-metadata", site.log_dir, "--level", "full", code=0)
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


def test_a_bucket_in_a_store_is_a_source(site: Site, url: str, store: ObjectStore, tmp_path: Path) -> None:
    """It is read, sought and indexed as the folder is; of a partition that is not asked for nothing is listed."""
    place = f"{url}/{STORAGE_DIRECTORY}"
    before, expected = store.contents("tiered"), kidxlib.read(site.bucket).read_all()
    assert kidxlib.read(place).read_all().equals(expected)
    assert kidxlib.count(url, layout="local", tiered_metadata=[site.log_dir]) == expected.num_rows
    store.requests.clear()
    assert kidxlib.count(place, topics=_TOPIC) == 300
    assert sum(not each.key for each in store.requests) <= 4, "of the bucket and of one partition, and for checkpoints"
    asked = ("--topic", _TOPIC, "--partition", "0", "--timestamp", "1760000059000", "--json")
    here, there = (run_here(kidx, "seek", each, *asked).json["answers"][0] for each in (site.bucket, place))
    assert {**here, "source": None} == {**there, "source": None}
    made = []
    for name, source in (("folder", site.bucket), ("store", place)):
        options = ("--catalog", tmp_path / name / "catalog", "--index-dir", tmp_path / name / "index", "--json")
        built = run_here(kidx, "build", "--source", f"it={source}", *options)
        assert built.code == 0, built.err
        again = run_here(kidx, "build", "--source", f"it={source}", *options)
        assert again.json["unchanged"] == len(site.segments(_TOPIC)) + 10
        made.append(tree(tmp_path / name / "index", "*.*"))
    assert made[0] == made[1] != {}
    assert store.contents("tiered") == before, "nothing is written there"


def test_etags_are_recorded(site: Site, url: str, store: ObjectStore, tmp_path: Path) -> None:
    """Those that the store has, by as many requests as without them; an object that is put again has another one."""
    catalog = catalog_at(tmp_path / "catalog")
    without = _audited(url, site, "listing")["requests"]
    where = (f"it={url}", "--tiered-metadata", site.log_dir, "--catalog", catalog)
    first = verified_tiered(*where, "--now", "2026-11-26T10:00Z", code=0)
    assert first["requests"] == without
    listed = {each["name"]: each for row in remote_rows(catalog) for each in row["objects"]}
    contents = store.contents("tiered")
    assert {name.rpartition("/")[2]: (len(data), _etag(name)) for name, data in contents.items()} == {
        name: (each["bytes"], each["etag"]) for name, each in listed.items()
    }
    key = _key(site.segments(_TOPIC)[0], OFFSET_INDEX_SUFFIX)
    content = contents[key.removeprefix("tiered/")]
    store.put(key, content[:-1] + bytes([content[-1] ^ 1]))
    verified_tiered(*where, "--now", "2026-11-26T11:00Z", code=0)
    etags = {(each["name"], each["etag"]) for row in remote_rows(catalog) for each in row["objects"] if each["etag"]}
    assert len(etags) == len(listed) + 1


def _etag(name: str) -> str:
    """What a HEAD says."""
    file, status = open_object(ObjectPath.of(f"s3://archive/tiered/{name}"))
    file.close()
    return status.etag.strip('"')


def test_pages_of_a_listing_follow_one_another(store: ObjectStore) -> None:
    """More than a thousand objects; those in directories below are others'."""
    names = [f"{number:05d}.log" for number in range(1003)]
    for name in [*names, "below/1.log"]:
        store.put(f"many/{name}", b"x")
    store.requests.clear()
    found = [path.name for path in objects_with_etags(ObjectPath.of("s3://archive/many"))]
    assert found == names
    assert len(store.requests) == 2
    assert list(objects_with_etags(ObjectPath.of("s3://archive/none"))) == []
    with pytest.raises(OSError, match="s3://no-such-bucket/none"):
        list(objects_with_etags(ObjectPath.of("s3://no-such-bucket/none")))


def test_what_is_deleted_meanwhile_is_not_missed(site: Site, url: str, store: ObjectStore) -> None:
    """A broker deletes a segment after the metadata was read, and before the partitions are listed: by the metadata of
    then it is missing, and the second look knows better.
    """
    partitions = len(list_bucket_partitions(site.bucket))
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
    found = _audited(url, site, "listing")
    store.before = None
    assert next(asked) > lists + 1, "it was not listed again"
    assert found["findings"] == []
    assert _audited(url, site, "listing")["segments"]["DELETE_SEGMENT_FINISHED"]["segments"] == 1


def _repaired(url: str, site: Site, code: int) -> dict[str, Any]:
    where = (url, "--tiered-metadata", site.log_dir, "--index-dir", site.log_dir.parent / "mirror")
    return repaired(*where, "--level", "indexes", "--apply", code=code)


def _key(segment: RemoteSegment, suffix: str) -> str:
    return f"tiered/{STORAGE_DIRECTORY}/{segment.directory.name}/{segment.object(suffix).name}"


def _damage(site: Site, store: ObjectStore) -> tuple[RemoteSegment, str, str]:
    """A segment whose transaction index is lost, and whose index is cut; the keys of both."""
    segment = next(each for each in site.segments(_TOPIC) if TRANSACTION_INDEX_SUFFIX in each.objects())
    lost, cut = _key(segment, TRANSACTION_INDEX_SUFFIX), _key(segment, OFFSET_INDEX_SUFFIX)
    store.delete(lost)
    store.put(cut, segment.object(OFFSET_INDEX_SUFFIX).read_bytes()[:-3])
    store.requests.clear()
    return segment, lost, cut


def _outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {each["file"]: each["outcome"] for each in found["objects"]}


def test_a_bucket_in_a_store_is_mended(site: Site, url: str, store: ObjectStore) -> None:
    before = store.contents("tiered")
    _, lost, cut = _damage(site, store)
    found = _repaired(url, site, 0)
    assert _outcomes(found) == {TRANSACTION_INDEX_SUFFIX: "put", OFFSET_INDEX_SUFFIX: "put"}
    assert {each.key for each in store.requests if each.method not in ("GET", "HEAD")} == {lost, cut}
    assert found["requests"]["put"] == 2
    assert store.contents("tiered") == before
    assert _audited(url, site, "full")["findings"] == []


def test_a_log_that_a_broker_still_has_is_not_fetched(site: Site, url: str, store: ObjectStore, tmp_path: Path) -> None:
    before = store.contents("tiered")
    segment, *_ = _damage(site, store)
    directory = tmp_path / "logs" / f"{_TOPIC}-0"
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {segment.partition.topic_id}")
    shutil.copy2(segment.object(LOG_SUFFIX), directory / segment_file(segment.offsets[0], LOG_SUFFIX))
    where = (url, "--tiered-metadata", site.log_dir, "--index-dir", tmp_path / "mirror")
    found = repaired(*where, "--level", "listing", "--logs", directory.parent, "--apply", code=0)
    assert found["local_logs"]["segments"] == 1
    fetched = {each.key for each in store.requests if each.method == "GET" and each.key.endswith(LOG_SUFFIX)}
    assert _key(segment, LOG_SUFFIX) not in fetched
    assert store.contents("tiered") == before


def _others(store: ObjectStore, key: str, content: bytes | None) -> Callable[[], None]:
    """Somebody else puts an object, or removes it."""
    return (lambda: store.delete(key)) if content is None else (lambda: store.put(key, content))


@pytest.mark.parametrize(
    ("suffix", "by_others", "outcome"),
    [
        (TRANSACTION_INDEX_SUFFIX, "other bytes", "conflict"),
        (TRANSACTION_INDEX_SUFFIX, "the same", "same-bytes"),
        (OFFSET_INDEX_SUFFIX, "other bytes", "conflict"),
        (OFFSET_INDEX_SUFFIX, None, "conflict"),
    ],
)
def test_what_somebody_else_puts_meanwhile_stays(
    site: Site, url: str, store: ObjectStore, suffix: str, by_others: str | None, outcome: str
) -> None:
    """Between our last look at an object and our writing it: one that is missing, and one that is broken."""
    segment, *_ = _damage(site, store)
    key = _key(segment, suffix)
    theirs = {"the same": segment.object(suffix).read_bytes(), "other bytes": b"theirs", None: None}[by_others]
    act = _others(store, key, theirs)
    store.before = lambda method, asked: act() if method == "PUT" and asked == key else None
    found = _repaired(url, site, 0 if outcome == "same-bytes" else 3)
    store.before = None
    assert _outcomes(found) == {TRANSACTION_INDEX_SUFFIX: "put", OFFSET_INDEX_SUFFIX: "put"} | {suffix: outcome}
    assert store.contents("tiered").get(key.removeprefix("tiered/")) == theirs


def test_an_answer_that_is_lost_is_no_conflict(site: Site, url: str, store: ObjectStore) -> None:
    """Each object is written, and asked for again: the second time the store says that its condition does not hold."""
    before = store.contents("tiered")
    _damage(site, store)
    coming: Counter[str] = Counter()
    one_by_one = threading.Lock()

    def lose_first(method: str, key: str) -> Fault | None:
        with one_by_one:
            coming[key] += method == "PUT"
            return Fault.LOST if method == "PUT" and coming[key] == 1 else None

    store.before = lose_first
    found = _repaired(url, site, 0)
    store.before = None
    assert _outcomes(found) == {TRANSACTION_INDEX_SUFFIX: "same-bytes", OFFSET_INDEX_SUFFIX: "same-bytes"}
    assert store.contents("tiered") == before


@pytest.mark.parametrize(("when", "outcome"), [("it is read", "not-put"), ("it is put", "left-over")])
def test_a_segment_that_is_deleted_meanwhile(site: Site, url: str, store: ObjectStore, when: str, outcome: str) -> None:
    """After it was read nothing is put any more. While it is put, nobody can know: then it is told."""
    segment, lost, _ = _damage(site, store)
    method, key = ("GET", _key(segment, LOG_SUFFIX)) if when == "it is read" else ("PUT", lost)
    one_by_one, is_done = threading.Lock(), False

    def delete(asked_how: str, asked: str) -> None:
        nonlocal is_done
        with one_by_one:
            if (asked_how, asked) == (method, key) and not is_done:
                is_done = True
                segment.update(_STARTED, at_ms=site.last_ms())
                if when == "it is put":
                    store.delete(_key(segment, LOG_SUFFIX))

    store.before = delete
    found = _repaired(url, site, 3)
    store.before = None
    assert is_done
    assert _outcomes(found)[TRANSACTION_INDEX_SUFFIX] == outcome
    assert (lost.removeprefix("tiered/") in store.contents("tiered")) == (outcome == "left-over")
