"""The table of files that a node reads: its test is there, and each trial that is recorded has a file there."""

from __future__ import annotations

import json
from itertools import chain
from typing import Final

from tests.docs.pages import PROJECT, read

_PAGE = "docs/start-files.md"
_RECORDED = PROJECT / "tests/kafka/recorded"
_TEST = "tests/kafka/test_starts.py::test_a_node_does_what_kidx_says"
_OFFSETS: Final = ("recovery-point", "log-start", "replication", "cleaner")
#: By the first column: the files of the trials that its rows tell of.
_TRIALS: Final = {
    "`meta.properties`": (
        "meta.properties",
        "meta.properties of the other log dir",
        "meta.properties of both log dirs",
    ),
    "a log dir": ("log dir", "the metadata's directory"),
    "`bootstrap.checkpoint`": ("bootstrap.checkpoint", "the .checkpoint of offset 0"),
    "`quorum-state`": ("quorum-state",),
    "metadata snapshot (`.checkpoint`)": (
        *("the latest .checkpoint", "all .checkpoint", "a .checkpoint", "a renamed .checkpoint"),
        *("an older .checkpoint", "a .checkpoint.part", "a .checkpoint.deleted"),
    ),
    "the metadata's log": ("the metadata's .log",),
    "its `leader-epoch-checkpoint`, `partition.metadata`": (
        "the metadata's leader-epoch-checkpoint",
        "the metadata's partition.metadata",
    ),
    **{f"`{name}-offset-checkpoint`": (f"{name}-offset-checkpoint",) for name in _OFFSETS},
    "`partition.metadata`": ("partition.metadata",),
    "a partition's directory": ("partition", "topic"),
    "`leader-epoch-checkpoint`": ("leader-epoch-checkpoint",),
    "producer snapshots (`.snapshot`)": ("producer snapshots",),
    **{f"`…{suffix}`": (suffix,) for suffix in ("-future", "-delete", "-stray")},
}
#: Files of trials after which a node starts, and serves all: no row tells of them.
_HARMLESS: Final = (".kafka_cleanshutdown", "nothing")


def test_each_trial_has_a_file_and_each_file_a_trial() -> None:
    rows = [line.strip("| ").split(" | ") for line in read(_PAGE).splitlines() if line.startswith("| ")][1:]
    # A row that goes on with the file of the one above has three cells.
    named = [row[0] for row in rows if len(row) == 4]
    assert named == list(_TRIALS)
    recorded = list(_RECORDED.glob("starts-*.json"))
    for path in recorded:
        files = {case.split(":")[0] for case in json.loads(path.read_text())}
        assert {*chain.from_iterable(_TRIALS.values()), *_HARMLESS} == files, path
    assert recorded


def test_the_test_that_started_brokers_is_there() -> None:
    path, name = _TEST.split("::")
    assert _TEST in read(_PAGE)
    assert f"def {name}(" in (PROJECT / path).read_text()
