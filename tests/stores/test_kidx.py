"""`kidx` on objects: what it says where it cannot reach them, and what it is asked of them without Spark."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kidxlib.lookup.checked_segment import WINDOW_BYTES
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.support.logs import golden
from tests.support.object_store import BUCKET, Fault, ObjectStore


@pytest.fixture
def url(store: ObjectStore) -> Iterator[str]:
    """Two partitions of the sample in the store."""
    for name in ("txn-mixed-0", "plain-zstd-0"):
        store.upload(golden.SAMPLES / name, f"kidx/logs/{name}")
    store.requests.clear()
    yield f"s3://{BUCKET}/kidx/logs"
    for name in list(store.contents("kidx")):
        store.delete(f"kidx/{name}")


def test_build_repair_audit_and_seek(store: ObjectStore, url: str, tmp_path: Path) -> None:
    in_bucket, on_disk = f"s3://{BUCKET}/kidx/index", tmp_path / "index"
    for index_dir in (in_bucket, on_disk):
        built = kidx("build", url, "--index-dir", index_dir, "--snapshots", "--epochs")
        assert built.code == 0, built
    right = store.contents("kidx/index")
    files = {str(path.relative_to(on_disk)): path.read_bytes() for path in sorted(on_disk.rglob("*")) if path.is_file()}
    assert right == files != {}

    damaged = min(name for name in right if name.endswith(".index"))
    store.put(f"kidx/index/{damaged}", right[damaged][:-3])
    assert kidx("verify", url, "--index-dir", in_bucket).code == 3
    assert kidx("build", url, "--index-dir", in_bucket, "--repair").code == 0
    assert store.contents("kidx/index") == right
    assert kidx("verify", url, "--index-dir", in_bucket, "--deep-iteration").code == 0

    question = ("--topic", "plain-zstd", "--partition", "0", "--offset", "9000", "--json")
    store.requests.clear()
    answer = kidx("seek", url, "--index-dir", in_bucket, *question)
    of_logs = [each for each in store.counted("GET") if each.is_of_log]
    assert sum(each.sent for each in of_logs) <= 2 * WINDOW_BYTES
    assert answer.code == 0 and '"found": true' in answer.out
    assert answer.out == kidx("seek", golden.SAMPLES, "--index-dir", on_disk, *question).out.replace(
        str(golden.SAMPLES), url
    )


def test_requests_are_counted(store: ObjectStore, url: str, tmp_path: Path) -> None:
    """Those of the command and of its workers, as the server has seen them; and those that were made again."""
    places = ("--source", f"s={url}", "--index-dir", f"s3://{BUCKET}/kidx/index", "--catalog", tmp_path / "catalog")
    line, metrics = tmp_path / "line.json", tmp_path / "build.prom"
    for arguments in (("--snapshots", "--epochs"), ("--plan-on-executors", "--rebuild"), ("--plan-on-executors",)):
        store.requests.clear()
        built = kidx("build", *places, *arguments, "--json", "--json-line", line, "--metrics-file", metrics)
        assert built.code == 0, built
        told = json.loads(line.read_text().splitlines()[-1])["requests"]
        assert Requests(**built.json["requests"]) == Requests(**told) == store.made() != Requests()
        assert f'kidx_run_requests{{job="build_index",kind="head"}} {told["head"]}.0' in metrics.read_text()
    store.disturb(7, Fault.SLOW_DOWN)
    again = kidx("build", url, "--index-dir", f"s3://{BUCKET}/kidx/index")
    assert re.search(r"^requests:    [0-9]+ LIST, [0-9]+ HEAD, [0-9]+ GET, [0-9]+ tried again$", again.out, re.M), again
    store.before = None
    assert kidx("build", url, "--index-dir", tmp_path / "index", "--json").json["requests"]["put"] == 0


@pytest.mark.parametrize(
    "arguments", [(), ("--plan-on-executors", "--processes", "1")], ids=["by the command", "by a worker"]
)
def test_a_dry_run_says_what_a_build_costs(
    arguments: tuple[str, ...], store: ObjectStore, url: str, tmp_path: Path
) -> None:
    """What the build then asks, which besides writes transaction indexes. Both look for the log dir's checkpoints."""
    places = ("--source", f"s={url}", "--index-dir", f"s3://{BUCKET}/kidx/index", "--catalog", tmp_path / "catalog")
    for read in (True, False):
        told = kidx("build", *places, *arguments, "--dry-run", "--json").json["cost"]
        said = kidx("build", *places, *arguments, "--dry-run").out
        built = kidx("build", *places, *arguments, "--json").json
        more = Requests(**built["requests"]) - Requests(**told["requests"])
        transaction_indexes = [name for name in store.contents("kidx/index") if name.endswith(".txnindex") and read]
        assert more == Requests(head=len(transaction_indexes), put=len(transaction_indexes))
        assert told["read_bytes"] == built["log_bytes"]
        assert re.search(r"^requests:  at least [0-9]+ LIST, [0-9]+ HEAD, [0-9]+ GET; [0-9.]+ \w+ to read", said, re.M)
        assert (f"; {told['requests']['put']} PUT for index files, if all differ" in said) is read


def _closed_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


def _refused(arguments: tuple[str, ...], *parts: str) -> str:
    ended = kidx(*arguments)
    ended.assert_one_line(ExitCode.USAGE, *parts)
    return ended.err


def test_what_cannot_be_done_is_one_line(store: ObjectStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_bucket, missing = ("--index-dir", f"s3://{BUCKET}/kidx/index"), f"s3://{BUCKET}/kidx/no-such"
    _refused(("build", url, "--in-place"), url, "no lock keeps others out", "--index-dir")
    _refused(("build", url, "--index-dir", f"{url}/index"), "one is inside the other")
    _refused(("build", missing, *in_bucket), missing, "no object with this prefix")
    _refused(("build", "s3://no-such-bucket/logs", *in_bucket), "s3://no-such-bucket/logs")
    _refused(("build", "gs://archive/logs", *in_bucket), "gs://archive/logs", "s3://<bucket>/<prefix>")
    _refused(("verify", url, "--index-dir", missing), missing, "no such directory")
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_SECRET_ACCESS_KEY", "another")
        assert "another" not in _refused(("build", url, *in_bucket), url, "ACCESS_DENIED")
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{_closed_port()}")
        _refused(("build", url, *in_bucket), url, "NETWORK_CONNECTION", "asked 3 times: is AWS_ENDPOINT_URL right")
    assert store.contents("kidx/index") == {}


def test_a_question_by_packed_indexes_asks_a_log_twice(store: ObjectStore, url: str, tmp_path: Path) -> None:
    """Beside the requests for the catalog's tables: none is for an index, nor for a batch that a walk has read. Among
    those of the catalog each index takes one that looks for the next commit.
    """
    packed, of_files = f"s3://{BUCKET}/catalogs/packed", f"s3://{BUCKET}/catalogs/files"
    for catalog, place in ((packed, ("--pack",)), (of_files, ("--index-dir", f"s3://{BUCKET}/kidx/index"))):
        built = kidx("build", "--source", f"s={url}", "--catalog", catalog, *place)
        assert built.code == 0, built
    assert [name for name in store.contents("kidx") if name.startswith("logs/") and "index" in name] == []
    objects = {key: len(store.contents(f"catalogs/{key}/index_bytes")) for key in ("packed", "files")}
    assert objects["packed"] - objects["files"] <= 4  # a data file and a commit for scans, and for transactions
    for question in ("--offset", "9000"), ("--offset", "15000"), ("--timestamp", "1760000100000"):
        asked = ("seek", "--topic", "plain-zstd", "--partition", "0", *question, "--json")
        counts, answers, of_table = {}, {}, 0
        for catalog in (packed, of_files):
            store.requests.clear()
            answers[catalog] = kidx(*asked, "--catalog", catalog)
            assert answers[catalog].code == 0, answers[catalog]
            counts[catalog] = len(store.counted("GET", "HEAD", prefix="kidx/"))
            of_table += len(store.counted("HEAD", prefix="catalogs/packed/index_bytes/_delta_log/"))
        assert answers[packed].json == answers[of_files].json
        assert counts[packed] <= 2 < counts[of_files]
        assert of_table <= 3, of_table  # .txnindex, .index and .timeindex
    for name in store.contents("catalogs"):
        store.delete(f"catalogs/{name}")
