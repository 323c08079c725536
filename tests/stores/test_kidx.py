"""`kidx` on objects, without Spark: it builds, audits, seeks and reads, and says what it cannot reach."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import LongType, StructField, StructType

from kidxlib.errors import LogChangedError
from kidxlib.library.read import count, read
from kidxlib.lookup.checked_segment import WINDOW_BYTES
from kidxlib.spark.source import KafkaSegmentSource
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.golden import SAMPLES
from tests.support.object_store import BUCKET, Fault, ObjectStore, free_port
from tests.support.spark.streams import Stream


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
    assert right == tree(on_disk) != {}

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
    for reads in (True, False):
        told = kidx("build", *places, *arguments, "--dry-run", "--json").json["cost"]
        said = kidx("build", *places, *arguments, "--dry-run").out
        built = kidx("build", *places, *arguments, "--json").json
        more = Requests(**built["requests"]) - Requests(**told["requests"])
        transaction_indexes = [name for name in store.contents("kidx/index") if name.endswith(".txnindex") and reads]
        assert more == Requests(head=len(transaction_indexes), put=len(transaction_indexes))
        assert told["read_bytes"] == built["log_bytes"]
        assert re.search(r"^requests:  at least [0-9]+ LIST, [0-9]+ HEAD, [0-9]+ GET; [0-9.]+ \w+ to read", said, re.M)
        assert (f"; {told['requests']['put']} PUT for index files, if all differ" in said) is reads


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
        wrong.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
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


_QUESTIONS = pa.table(
    {"topic": ["plain-zstd"] * 3, "partition": [0, 0, 1], "offset": [9000, None, 1], "timestamp": [None, -1, None]}
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("seek-files")
    places = ("--index-dir", directory / "index", "--catalog", directory / "catalog")
    assert kidx("build", golden.SAMPLES, *places).code == 0
    return directory / "catalog"


@pytest.fixture
def questions(store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    """Questions in the store, as files of all kinds."""
    local = tmp_path / "seek-files"
    local.mkdir()
    (local / "questions.csv").write_text("topic,partition,offset,timestamp\nplain-zstd,0,9000,\nplain-zstd,0,,-1\n")
    with (local / "questions.csv").open("a") as file:
        file.write("plain-zstd,1,1,\n")
    lines = ('"partition": 0, "offset": 9000', '"partition": 0, "timestamp": -1', '"partition": 1, "offset": 1')
    (local / "questions.json").write_text("".join(f'{{"topic": "plain-zstd", {line}}}\n' for line in lines))
    pq.write_table(_QUESTIONS, local / "questions.parquet")
    write_deltalake(local / "questions", _QUESTIONS)
    store.upload(local, "seek-files")
    yield f"s3://{BUCKET}/seek-files"
    for name in list(store.contents("seek-files")):
        store.delete(f"seek-files/{name}")


@pytest.mark.parametrize("kind", [".csv", ".json", ".parquet", ""])
def test_files_are_those_on_disk(kind: str, store: ObjectStore, questions: str, catalog: Path, tmp_path: Path) -> None:
    ask = ("seek", "--catalog", catalog, "--queries", f"{questions}/questions{kind}")
    here, there = tmp_path / f"answers{kind}", f"{questions}/answers{kind}"
    for output in (here, there):
        ended = kidx(*ask, "--output", output)
        assert ended.code == 3 and ended.out.startswith("3 answers, 2 found"), ended
    written = store.contents("seek-files")
    if here.is_file():
        assert written[f"answers{kind}"] == here.read_bytes()
    else:
        [name] = [name for name in written if name.startswith(f"answers{kind}/") and name.endswith(".parquet")]
        [file] = here.glob("*.parquet")
        assert pq.read_table(pa.BufferReader(written[name])) == pq.read_table(file)
    again = kidx(*ask, "--output", there)
    assert (again.code, again.err) == (2, f"error: --output {there}: it is there already; expected a new name\n")


def test_a_wrong_question_there_is_named(questions: str, store: ObjectStore, catalog: Path) -> None:
    store.put("seek-files/wrong.csv", b"topic,partition,offset\na,0,1\na,x,1\n")
    for name, what in {
        "wrong.csv": "line 3: partition x, expected a whole number from 0 on; nothing was answered",
        "none.csv": "Path does not exist; expected a file called .csv, .json or .parquet, or a Delta table",
    }.items():
        ended = kidx(
            "seek", "--catalog", catalog, "--queries", f"{questions}/{name}", "--output", f"{questions}/out.csv"
        )
        assert (ended.code, ended.err) == (2, f"error: --queries {questions}/{name}: {what}\n")


def test_objects_are_read_as_files_are(store: ObjectStore) -> None:
    for name in ("txn-mixed-0", "plain-zstd-0"):
        store.upload(SAMPLES / name, f"read/logs/{name}")
    url = f"s3://{BUCKET}/read/logs"
    for isolation in ("read_uncommitted", "read_committed"):
        asked: dict[str, Any] = {"isolation": isolation, "topics": "(txn|plain)-.*"}
        found = read(url, include_headers=True, threads=2, **asked).read_all()
        assert found.equals(read(SAMPLES, include_headers=True, **asked).read_all())
        assert count(url, **asked) == found.num_rows
    part = read(f"{url}/txn-mixed-0", offsets=(5_000, 5_010), columns=["offset"]).read_all()
    assert part.equals(read(SAMPLES / "txn-mixed-0", offsets=(5_000, 5_010), columns=["offset"]).read_all())
    log = "txn-mixed-0/00000000000000000084.log"
    one = read(f"{url}/{log}", columns=["offset"]).read_all()
    assert one.equals(read(SAMPLES / log, columns=["offset"]).read_all())
    reader = read(f"{url}/{log}", columns=["offset"])
    store.put(f"read/logs/{log}", (SAMPLES / log).read_bytes()[:-1])
    with pytest.raises(LogChangedError):
        reader.read_all()


def test_a_catalog_in_the_store_knows_them_as_they_are(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """One that was put there again is scanned for transactions: nothing shows that it is the same."""
    store.upload(SAMPLES / "txn-mixed-0", "known/logs/txn-mixed-0")
    logs, index_dir, catalog = (f"s3://{BUCKET}/known/{name}" for name in ("logs", "index", "catalog"))
    built = kidx("build", logs, "--index-dir", index_dir, "--catalog", catalog)
    assert built.code == 0, built.err
    options: dict[str, Any] = {"isolation": "read_committed", "columns": ["offset"]}
    expected = read(SAMPLES / "txn-mixed-0", **options).read_all()
    log = "txn-mixed-0/00000000000000000084.log"
    for scanned in (0, 1):
        caplog.clear()
        with caplog.at_level(logging.INFO, "kidxlib"):
            assert read(logs, catalog=catalog, **options).read_all().equals(expected)
        assert [f"scanned for transactions: {scanned} log" in line for line in caplog.messages] == [bool(scanned)]
        store.put(f"known/logs/{log}", (SAMPLES / log).read_bytes())


def test_tasks_of_spark_read_them(store: ObjectStore) -> None:
    """From what the driver has planned, which says all that they need to know."""
    store.upload(SAMPLES / "txn-mixed-0", "spark/logs/txn-mixed-0")
    source = KafkaSegmentSource({"path": f"s3://{BUCKET}/spark/logs", "isolation": "read_committed"})
    reader = source.reader(StructType([StructField("offset", LongType())]))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    found = [offset for task in tasks for rows in reader.read(task) for offset in rows.column("offset").to_pylist()]
    expected = read(SAMPLES / "txn-mixed-0", isolation="read_committed", columns=["offset"]).read_all()
    assert found == expected["offset"].to_pylist()


def test_a_stream_reads_objects_that_are_uploaded_while_it_runs(store: ObjectStore) -> None:
    """An active segment is uploaded again, longer than before."""
    path = store.upload(SAMPLES / "txn-mixed-0", "streams/logs/txn-mixed-0").removesuffix("/txn-mixed-0")
    *_, last = sorted((SAMPLES / "txn-mixed-0").glob("*.log"))
    data, key = last.read_bytes(), f"streams/logs/txn-mixed-0/{last.name}"
    store.put(key, data[: len(data) // 2])
    stream = Stream(path, isolation="read_committed", maxBytesPerTrigger="1000000")
    assert len(stream.run()) == 2
    store.put(key, data)
    assert len(stream.run()) == 1
    expected = read(SAMPLES, topics="txn-mixed", isolation="read_committed", columns=["offset"]).read_all()
    assert [offset for _, offset in stream.rows] == expected["offset"].to_pylist()
