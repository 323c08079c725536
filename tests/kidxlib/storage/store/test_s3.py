"""Objects of a store that is asked for too much and whose connections end: read, written, listed and removed all the
same, and where that cannot be, one error says so and what was there stays.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.storage.store import requests
from kidxlib.storage.store.requests import TRIES
from kidxlib.storage.store.s3 import (
    PARTS_FROM_BYTES,
    ObjectPath,
    delete_object,
    input_file,
    object_written,
    open_object,
    put_object,
    read_object,
    read_object_into,
)
from tests.support.object_store import BUCKET, Fault, ObjectStore

_LARGE: Final = np.random.default_rng(5).integers(0, 256, 2 * PARTS_FROM_BYTES + 5, np.uint8).tobytes()
_PAGE: Final = 1_000


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_PAUSE_MAX_SECONDS", 0)


@pytest.fixture
def place(store: ObjectStore, request: pytest.FixtureRequest) -> Iterator[ObjectPath]:
    key = f"disturbed/{request.node.name}"
    yield ObjectPath(f"{BUCKET}/{key}")
    store.before = None
    for name in list(store.contents(key)):
        store.delete(f"{key}/{name}")


def _contents(store: ObjectStore, place: ObjectPath) -> dict[str, bytes]:
    store.before = None
    return store.contents(place.key.removeprefix(f"{BUCKET}/"))


@pytest.mark.parametrize("fault", [*Fault, 500])
def test_faults_of_every_third_request_change_nothing(
    fault: Fault | int, store: ObjectStore, place: ObjectPath
) -> None:
    store.disturb(3, fault)
    contents = {f"{number:02}": bytes([number]) * number * 1_000 for number in range(6)}
    for name, content in contents.items():
        put_object(place / name, content)
    assert [path.name for path in place.iterdir()] == list(contents)
    for name, content in contents.items():
        path = place / name
        file, status = open_object(path)
        room = np.zeros(status.st_size // 2, np.uint8)
        assert read_object_into(file, path, 0, room) == len(room)
        assert room.tobytes() + read_object(file, path, len(room), status.st_size) == content
        assert path.exists() and path.is_file() and not (place / "none").exists()
    for name in contents:
        delete_object(place / name)
    with pytest.raises(FileNotFoundError, match="no such object"):
        open_object(place / "00")
    assert not store.contents(place.key.removeprefix(f"{BUCKET}/"))


def test_each_page_of_a_listing_and_each_part_of_an_object_is_asked_for_again(
    store: ObjectStore, place: ObjectPath
) -> None:
    """Every other one is refused: the whole never comes through at once."""
    key = place.key.removeprefix(f"{BUCKET}/")
    names = [f"{number:05}" for number in range(2 * _PAGE + 1)]
    (store.objects / key).mkdir(parents=True)
    for name in names:
        (store.objects / key / name).touch()
    store.disturb(2, Fault.SLOW_DOWN)
    assert [path.name for path in place.iterdir()] == names
    shutil.rmtree(store.objects / key)
    store.disturb(2, Fault.RESET, Fault.SLOW_DOWN)
    put_object(place / "large", _LARGE)
    assert input_file(place / "large").read() == _LARGE
    assert _contents(store, place) == {"large": _LARGE}


def test_a_store_that_stays_away_is_one_error_after_so_many_tries(store: ObjectStore, place: ObjectPath) -> None:
    put_object(place / "a", b"before")
    file, _ = open_object(place / "a")
    store.requests.clear()
    requests: dict[str, Callable[[], Any]] = {
        "HEAD": lambda: open_object(place / "a"),
        "GET": lambda: read_object(file, place / "a", 0, 6),
        "PUT": lambda: put_object(place / "a", b"after"),
    }
    for (method, request), (fault, what) in itertools.product(
        requests.items(),
        [
            (Fault.RESET, "the connection ended each time: run the same command again when the network is well"),
            (503, "the store is asked for too much: run the same command again later, or with fewer processes"),
            (500, "the store fails: run the same command again when it is well"),
            (403, None),
        ],
    ):
        store.disturb(1, fault)
        with pytest.raises(OSError, match=f"AWS Error .*{what or 'ACCESS_DENIED'}") as raised:
            request()
        assert (raised.value.filename, "Request ID" in str(raised.value)) == (str(place / "a"), False)
        assert (f"; asked {TRIES} times: " in str(raised.value)) is (what is not None)
        asked = len(store.counted(method))  # on a connection that it has used before, curl asks once more by itself
        assert asked == (TRIES if what else 1) or (fault is Fault.RESET and asked > TRIES)
        store.requests.clear()
    assert _contents(store, place) == {"a": b"before"}


@pytest.mark.parametrize("refused", ["POST", "PUT"])
def test_a_large_object_that_is_refused_leaves_what_was_there(
    refused: str, store: ObjectStore, place: ObjectPath, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrow would put an empty object there when it takes the stream apart."""
    put_object(place / "a", b"before")
    store.disturb(1, *[403], method=refused)
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        put_object(place / "a", _LARGE)
    assert _contents(store, place) == {"a": b"before"}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("written", [b"part", _LARGE])
def test_an_object_whose_writing_ends_with_an_error_never_appears(
    written: bytes, store: ObjectStore, place: ObjectPath, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), object_written(place / "a") as stream:
        stream.write(written)
        _ = 1 // 0
    assert _contents(store, place) == {}
    with object_written(place / "a") as stream:
        stream.write(written)
    assert _contents(store, place) == {"a": written}
    assert capfd.readouterr().err == ""


def test_many_at_once_are_answered_each_its_own(store: ObjectStore, place: ObjectPath) -> None:
    store.disturb(4, Fault.SLOW_DOWN, Fault.RESET)
    contents = {f"{number:02}": bytes([number]) * 1_000 for number in range(40)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: put_object(place / name, contents[name]), contents))
        assert (
            dict(zip(contents, threads.map(lambda name: (place / name).read_bytes(), contents), strict=True))
            == contents
        )
