"""The jobs on objects of a real S3 server: the same logs as two sources, on disk and in the store, get the same rows
and index files, verdicts and answers.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.cli.main import kidx
from kidxlib.lookup.checked_segment import WINDOW_BYTES
from kidxlib.operations.compare import copy_in_store
from kidxlib.storage.store.requests import Requests
from tests.jobs.archive import assert_refused
from tests.support.checksum_store import ChecksumStore
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.spark.jobs import (
    Ended,
    build_here,
    compact_here,
    kidx_build_here,
    retention_here,
    rows,
    run_here,
    seek_here,
    verify_here,
)

#: Directories of damaged logs that go along with the sample.
_DAMAGED: Final = ("cut-v2-txn-lz4-0", "flip-v1-gzip-0", "lenneg-v0-0")

#: What differs between a file and its copy in a store.
_OF_PLACE: Final = ("source", "log_path", "index_directory", "log_mtime_ns", "log_mtime", "log_inode", "directory")
_OF_READS: Final = ("read_requests", "read_bytes")


class Twins:
    """A log dir on disk and its copy in the object store, one index directory there for both, and one catalog."""

    def __init__(self, store: ObjectStore, directory: Path) -> None:
        self.store, self.directory = store, directory
        self.log_dir, self.catalog = directory / "kafka-logs", directory / "catalog"
        shutil.copytree(golden.SAMPLES, self.log_dir)
        for name in _DAMAGED:
            shutil.copytree(golden.DATA / "logs" / name, self.log_dir / name)
        self.url = store.upload(self.log_dir, "jobs/kafka-logs")
        sources = ("--source", f"disk={self.log_dir}", "--source", f"store={self.url}")
        self.places = (*sources, "--index-dir", f"s3://{BUCKET}/jobs/index")

    def build(self, *arguments: str | Path) -> Ended:
        return build_here(*self.places, "--catalog", self.catalog, "--json", *arguments)

    def rows_of(self, table: str, source: str) -> list[dict[str, Any]]:
        found = rows(self.catalog, f"SELECT * FROM {table} WHERE source = '{source}'")
        return sorted(found, key=lambda row: [str(row.get(name)) for name in ("topic", "partition", "base_offset")])

    def indexes(self, source: str) -> dict[str, bytes]:
        return self.store.contents(f"jobs/index/{source}")

    def assert_same_rows(self) -> None:
        for table in ("segments", "partitions", "producer_events", "aborted_transactions"):
            alike = [
                [
                    {name: value for name, value in row.items() if name not in (*_OF_PLACE, *_OF_READS)}
                    for row in self.rows_of(table, source)
                ]
                for source in ("disk", "store")
            ]
            if table in ("producer_events", "aborted_transactions"):
                alike = [sorted(of_source, key=lambda row: json.dumps(row, default=str)) for of_source in alike]
            assert alike[0] == alike[1] != [], table


@pytest.fixture
def twins(store: ObjectStore, tmp_path: Path) -> Iterator[Twins]:
    yield Twins(store, tmp_path)
    for name in list(store.contents("jobs")):
        store.delete(f"jobs/{name}")


def test_every_job_does_with_objects_what_it_does_with_files(twins: Twins, rng: random.Random) -> None:
    """One after the other: each job has what the one before it has left."""
    _build(twins)
    _build_again(twins)
    _audit(twins)
    _ask(twins, rng)
    _compact(twins)
    _remove_nothing(twins)


def _build(twins: Twins) -> None:
    """Each log is read once and from its start to its end, and each index is written once."""
    twins.store.requests.clear()
    first = twins.build("--snapshots", "--epochs")
    assert first.code == 3, first.err  # for the damaged ones
    assert Requests(**first.json["requests"]) == twins.store.made()
    assert twins.indexes("disk") == twins.indexes("store") != {}
    twins.assert_same_rows()
    for segment in golden.committed():
        name = f"{segment.log.parent.name}/{segment.log.stem}"
        if (twins.log_dir / f"{name}.log").exists():
            assert twins.indexes("store")[f"{name}.index"] == segment.offset_index
            assert twins.indexes("store")[f"{name}.timeindex"] == segment.time_index
    for row in twins.rows_of("segments", "disk"):
        assert [row[name] for name in _OF_READS] == [None, None]
    for row in twins.rows_of("segments", "store"):
        asked = twins.store.counted("GET", "HEAD", prefix=row["log_path"].removeprefix(f"s3://{BUCKET}/"))
        assert (row["read_requests"], row["read_bytes"]) == (3, row["log_bytes"])
        assert (len(asked), sum(each.sent for each in asked)) == (3, row["log_bytes"])
        assert row["log_inode"] is None
    written = [each.key for each in twins.store.counted("PUT", "POST", prefix="jobs/index/")]
    assert len(written) == len(set(written)) == len(twins.indexes("disk")) + len(twins.indexes("store"))


def _build_again(twins: Twins) -> None:
    """Nothing has changed, so no log is opened and nothing is written."""
    twins.store.requests.clear()
    again = twins.build("--snapshots", "--epochs")
    assert (again.json["segments"], again.json["unchanged"], again.json["rows_changed"]) == (0, 30, 0)
    assert {each.method for each in twins.store.requests if each.is_of_log} == set()
    assert twins.store.counted("PUT", "POST", "DELETE") == []


def _audit(twins: Twins) -> None:
    """The same verdicts."""
    audit = verify_here(*twins.places, "--catalog", twins.catalog, "--json")
    assert audit.code == 3, audit  # for the damaged logs
    verdicts = [
        [(row["file"], row["verdict"], row["reason"], row["base_offset"]) for row in twins.rows_of("findings", source)]
        for source in ("disk", "store")
    ]
    assert sorted(verdicts[0], key=str) == sorted(verdicts[1], key=str)
    assert {verdict for file, verdict, _, _ in verdicts[1] if file != ".log"} == {"identical"}
    assert {verdict for file, verdict, _, _ in verdicts[1] if file == ".log"} >= {"whole", "broken"}


def _ask(twins: Twins, rng: random.Random) -> None:
    """The same answers, and of objects few bytes."""
    queries, output = twins.directory / "queries.csv", twins.directory / "answers.json"
    with queries.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(("topic", "partition", "offset", "timestamp"))
        for row in twins.rows_of("segments", "disk"):
            offset = rng.randrange(row["base_offset"], row["next_offset"] + 1)
            writer.writerow((row["topic"], row["partition"], offset, ""))
            writer.writerow((row["topic"], row["partition"], "", row["max_timestamp_ms"] - rng.randrange(1000)))
    twins.store.requests.clear()
    asked_both = seek_here("--catalog", twins.catalog, "--queries", queries, "--output", output, "--json")
    assert asked_both.code in (0, 3), asked_both
    found = _answers(twins, output)
    assert found["disk"] == found["store"] and len(found["store"]) == 30
    of_logs = [each for each in twins.store.counted("GET") if each.is_of_log]
    assert 0 < max(each.sent for each in of_logs) <= WINDOW_BYTES
    assert len(of_logs) <= 4 * len(found["store"])


def _answers(twins: Twins, output: Path) -> dict[str, list[dict[str, Any]]]:
    """By source, with the same name for both in their notes."""
    found: dict[str, list[dict[str, Any]]] = {"disk": [], "store": []}
    for part in output.glob("*.json") if output.is_dir() else [output]:
        for line in part.read_text().splitlines():
            answer = json.loads(line)
            note = answer.pop("note", None)
            places = note and note.replace(str(twins.log_dir), "LOGS").replace(twins.url, "LOGS")
            found[answer.pop("source")].append({**answer, "note": places})
    return found


def _compact(twins: Twins) -> None:
    """Sparser indexes, the same for both."""
    compaction = ("--catalog", twins.catalog, "--interval-bytes", "16384")
    planned = compact_here(*compaction, "--json")
    before = twins.indexes("store")
    assert planned.code == 0, planned
    assert compact_here(*compaction, "--apply", "--json").code == 0
    assert twins.indexes("disk") == twins.indexes("store") != before
    twins.assert_same_rows()
    intervals = {row["interval_bytes"] for row in twins.rows_of("segments", "store") if not row["active"]}
    assert intervals == {16384}


def _remove_nothing(twins: Twins) -> None:
    """What would remove indexes or logs is refused."""
    for option in ("--trim", "--orphans"):
        assert_refused(compact_here("--catalog", twins.catalog, option, "--apply"), "change nothing in an object store")
    policy = twins.directory / "policy.toml"
    policy.write_text(
        "cleanup.policy = 'delete'\nretention.ms = 1\nretention.bytes = -1\nremote.storage.enable = false\n"
    )
    plan = retention_here("--catalog", twins.catalog, "--policy", policy, "--json")
    assert plan.code in (0, 3), plan
    apply = ("--catalog", twins.catalog, "--apply", "--plan", plan.json["plan_id"], "--delete-delay", "0s")
    assert_refused(retention_here(*apply), "nothing is deleted in an object store")
    assert twins.indexes("store") and twins.store.contents("jobs/kafka-logs")


def test_executors_compare_copies_as_the_command_does(
    checksum_store: ChecksumStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if there were many segments: of few the driver asks itself."""
    catalog = tmp_path / "catalog"
    built = kidx_build_here("--source", golden.SAMPLES, "--index-dir", tmp_path / "index", "--catalog", catalog)
    assert built.code == 0, built
    for number, log in enumerate(sorted(golden.SAMPLES.rglob("*.log"))):
        key, content = f"jobs/copies/{log.relative_to(golden.SAMPLES)}", log.read_bytes()
        checksum_store.put_with(key, content[:-1] if number == 5 else content, "CRC32C")
    url = f"s3://{BUCKET}/jobs/copies"
    monkeypatch.setattr(copy_in_store, "_FEW_SEGMENTS", 0)
    for options in ((), ("--require-checksums", "--topics", "plain-.*")):
        asked = ("--copy", url, "--catalog", catalog, "--json", *options)
        job, command = verify_here(*asked), run_here(kidx, "verify", *asked)
        assert (job.code, job.json) == (command.code, command.json)
        assert job.code == (0 if options else 3)
        segments = sum(job.json["segments"].values())
        assert job.json["requests"] == Requests(list=1, head=segments).as_json()
