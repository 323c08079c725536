"""HEADs of objects: what is made of the answers, and of a store that has none."""

from __future__ import annotations

from typing import Any

import pytest

from kidxlib.storage.store import requests
from kidxlib.storage.store.client import HeadAnswer, ObjectHead, ask_for_head, connect, ensure_any_object, head_of
from kidxlib.storage.store.requests import TRIES, Requests, requests_made
from kidxlib.storage.store.s3 import ObjectPath
from tests.support.object_store import BUCKET, Fault, ObjectStore

_OBJECT = ObjectPath(f"{BUCKET}/heads/a")


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_PAUSE_MAX_SECONDS", 0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, ObjectHead(9)),
        ({"ChecksumCRC32C": "4waSgw==", "ChecksumType": "FULL_OBJECT"}, ObjectHead(9, crc32c=0xE3069283)),
        ({"ChecksumCRC64NVME": "rosUhgp5mIg="}, ObjectHead(9, crc64nvme=0xAE8B14860A799888)),
        ({"ChecksumCRC32C": "4waSgw==-3", "ChecksumType": "COMPOSITE"}, ObjectHead(9, composite=("CRC-32C",))),
        ({"ChecksumCRC32C": "4waSgw==-3"}, ObjectHead(9, composite=("CRC-32C",))),  # of a server that says no type
        ({"ChecksumCRC32C": "4waSgw==", "ChecksumType": "COMPOSITE"}, ObjectHead(9, composite=("CRC-32C",))),
        ({"ChecksumSHA256": "x", "ChecksumCRC32": "y"}, ObjectHead(9, others=("CRC-32", "SHA-256"))),
        ({"ChecksumCRC32C": "rosUhgp5mIg="}, ObjectHead(9, others=("CRC-32C",))),  # none of 32 bits
        ({"ChecksumCRC32C": "?"}, ObjectHead(9, others=("CRC-32C",))),
    ],
)
def test_checksums_of_the_whole_and_of_parts(answer: dict[str, Any], expected: ObjectHead) -> None:
    """Base64 of big-endian bytes; the values that the catalogue of CRC algorithms has of 123456789."""
    assert head_of({"ContentLength": 9, **answer}) == expected


def test_each_try_is_counted(store: ObjectStore) -> None:
    store.put("heads/a", b"123456789")
    assert ask_for_head(connect(), _OBJECT) == HeadAnswer(ObjectHead(9))
    before = requests_made()
    store.requests.clear()
    store.disturb(3, Fault.SLOW_DOWN, Fault.RESET, 500, method="HEAD")
    assert {ask_for_head(connect(), _OBJECT).head for _ in range(12)} == {ObjectHead(9)}
    tries = len(store.requests)
    assert requests_made() - before == Requests(head=tries, tried_again=tries - 12)
    assert tries > 12


def test_what_there_is_no_object_for(store: ObjectStore) -> None:
    missing = ObjectPath(f"{BUCKET}/heads/missing")
    assert ask_for_head(connect(), missing) == HeadAnswer(None)
    with pytest.raises(FileNotFoundError, match="no object with this prefix"):
        ensure_any_object(connect(), missing)
    store.put("heads/a", b"")
    ensure_any_object(connect(), ObjectPath(f"{BUCKET}/heads"))
    connect().create_multipart_upload(Bucket=BUCKET, Key="heads/begun")  # this server gives it a place in a page
    ensure_any_object(connect(), ObjectPath(BUCKET))
    store.before = lambda *_: 403
    assert ask_for_head(connect(), _OBJECT) == HeadAnswer(None, "HTTP 403: Forbidden")


@pytest.mark.parametrize(("fault", "words"), [(503, "asked for too much"), (Fault.RESET, "the connection ended")])
def test_a_store_that_stops_answering_is_asked_ten_times(store: ObjectStore, fault: Fault | int, words: str) -> None:
    store.put("heads/a", b"")
    store.requests.clear()
    store.before = lambda *_: fault
    with pytest.raises(OSError, match=f"asked {TRIES} times.*{words}"):
        ask_for_head(connect(), _OBJECT)
    assert len(store.counted("HEAD")) == TRIES
