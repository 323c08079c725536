"""An object store that takes its time to answer: how long it takes to list, to publish index files, and to build; and
what a question costs whose index files are packed in a catalog there.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.figures import Target, record
from benchmarks.library import at_once, wait_for_others
from benchmarks.submit import JobRun, run_command
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.indexing.plan import find_segments
from kidxlib.indexing.source import IndexPlace, parse_topics, source_at
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Directory, location
from kidxlib.storage.publisher import Publisher
from kidxlib.terminal.console import note
from tests.faults.trees import small_log
from tests.support.logs import golden
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore, object_store

_SOURCE: Final = f"s3://{BUCKET}/kafka-logs"
_CATALOG: Final = f"s3://{BUCKET}/catalog"
_SAMPLE: Final = "sample"
_ASKED: Final = "txn-mixed-0"
_QUESTIONS: Final = (("offset", "500"), ("timestamp", "2026-11-21T01:32:20.485Z"))
_BATCHES: Final = 40
_KIDX: Final = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "kidx"


@click.command(name="stores")
@click.option("--partitions", type=click.IntRange(1), default=100, show_default=True)
@click.option("--segments", type=click.IntRange(1), default=1, show_default=True, help="Of each partition.")
@click.option("--answer-ms", type=click.IntRange(0), default=50, show_default=True, help="How long each request waits.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def stores(partitions: int, segments: int, answer_ms: int, rounds: int, directory: Path) -> None:
    """List partitions of small segments, publish as many index files, and build the segments, in an S3 store that waits
    before each answer. Listing and publishing are one process' work; a build is all of `kidx build` without a catalog.
    Then a partition of the sample is built with --pack into a catalog in the store, and `kidx seek` answers by it:
    requests for its tables have figures of their own.
    """
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory(dir=directory.resolve()) as place, object_store(Path(place)) as store:
        os.environ["AWS_ENDPOINT_URL"] = store.endpoint
        _upload(store, partitions, segments)
        store.before = lambda method, key: time.sleep(answer_ms / 1000)
        listing, publishing, builds = [], [], []
        for number in range(rounds):
            note(f"round {number + 1} of {rounds} …")
            listing += at_once(_list, [()])
            publishing += at_once(_publish, [(f"s3://{BUCKET}/published-{number}", partitions)])
            builds.append(_build(number))
        note("packing, and asking …")
        _pack(store)
        targets = [target for kind, asked in _QUESTIONS for target in _questions(store, kind, asked, rounds)]
    targets += [
        Target(name=f"{partitions:,} partitions listed", unit="s", values=listing),
        Target(name=f"{partitions:,} index files published", unit="s", values=publishing),
        Target(name=f"{partitions * segments:,} segments built", unit="s", values=[run.seconds for run in builds]),
    ]
    requests = [run.json["requests"] for run in builds]
    record(directory, "stores", targets, answer_ms=answer_ms, requests=requests)


def _pack(store: ObjectStore) -> None:
    """Build a partition of the sample, whose records can be read, into a catalog with its index files."""
    for path in sorted((golden.SAMPLES / _ASKED).iterdir()):
        store.put(f"{_SAMPLE}/{_ASKED}/{path.name}", path.read_bytes())
    run_command(
        [str(_KIDX), "build", "--source", f"bench=s3://{BUCKET}/{_SAMPLE}", "--catalog", _CATALOG, "--pack", "--json"]
    )


def _questions(store: ObjectStore, kind: str, asked: str, rounds: int) -> list[Target]:
    """Requests of a question, each time asked by a command of its own: to the catalog, and to all else."""
    of_catalog: list[float] = []
    others: list[float] = []
    topic, _, partition = _ASKED.rpartition("-")
    for _ in range(rounds):
        store.requests.clear()
        where = ["--catalog", _CATALOG, "--topic", topic, "--partition", partition]
        run_command([str(_KIDX), "seek", *where, f"--{kind}", asked])
        for_catalog = sum((request.key or request.prefix).startswith("catalog/") for request in store.requests)
        of_catalog.append(for_catalog)
        others.append(len(store.requests) - for_catalog)
    name = f"packed, {kind}: requests a question"
    return [
        Target(name=f"{name}, beside those of the catalog", unit="requests", values=others, at_most=2),
        Target(name=f"{name}, to the catalog", unit="requests", values=of_catalog),
    ]


def _upload(store: ObjectStore, partitions: int, segments: int) -> None:
    for number in range(partitions):
        partition = f"kafka-logs/bench-{number}"
        store.put(f"{partition}/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        for base_offset in range(0, segments * _BATCHES, _BATCHES):
            store.put(f"{partition}/{segment_file(base_offset, LOG_SUFFIX)}", small_log(_BATCHES, base_offset))


def _timed(work: Callable[[], Any]) -> float:
    """Seconds, in a process that has asked the store before."""
    location(_SOURCE).exists()
    wait_for_others()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _list() -> float:
    index_place = IndexPlace(index_dir=None, by_source=False)
    source = source_at(_SOURCE, "bench")
    return _timed(
        lambda: find_segments([source], parse_topics(".*"), index_place, lambda _: OptionsOfTopic(RecoverOptions()))
    )


def _publish(index_dir: str, files: int) -> float:
    def publish() -> None:
        with Publisher() as publisher:
            for number in range(files):
                publisher.begin_staging(
                    Directory(index_dir, f"bench-{number}"),
                    segment_file(0, OFFSET_INDEX_SUFFIX),
                    bytes(8 * (number + 1)),
                )
            publisher.commit()

    return _timed(publish)


def _build(number: int) -> JobRun:
    return run_command([str(_KIDX), "build", _SOURCE, "--index-dir", f"s3://{BUCKET}/index-{number}", "--json"])
