"""A log that is missing between two others: named by verify, build and report, with and without a catalog; accepted."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kidxlib import audit_directory
from kidxlib.audit.gaps import GAP
from kidxlib.cli.main import kidx
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.segment_files import segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from tests.docs.log_dirs import put
from tests.jobs.archive import assert_refused
from tests.support.cluster_metadata import OTHER_ID, config, data, leader_change, topic, topic_id, write_copy
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, rows, run_here

_DETAIL = "offsets 3 to 5 are in no log (3 offsets)"


def _kidx(command: str, *arguments: str | Path) -> Ended:
    return run_here(kidx, command, *arguments)


def _found(ended: Ended) -> list[tuple[Any, ...]]:
    """Of each gap in a JSON object what is said of it."""
    shown = ended.json
    gaps = shown.get("damage", shown)["gaps"]
    return [(gap["source"], gap["topic"], gap["first_offset"], gap["last_offset"], gap["reason"]) for gap in gaps]


@dataclass(frozen=True)
class _Site:
    """Two copies of a log of three segments, `a` and `b`; and a catalog of both, made before one was lost."""

    root: Path

    @property
    def catalog(self) -> Path:
        return self.root / "catalog"

    def log_dir(self, source: str) -> Path:
        return self.root / source

    def log_dir_of_broker(self) -> Path:
        """The log dir `a`, with what its broker knows of it."""
        log_dir = self.log_dir("a")
        (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
        partition = {TopicPartition("orders", 0): 9}
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            (log_dir / name).write_bytes(offset_checkpoint(partition))
        (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({}))
        (log_dir / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
        return log_dir

    def build(self, *options: str, sources: str = "ab") -> Ended:
        named = [argument for name in sources for argument in ("--source", f"{name}={self.log_dir(name)}")]
        return _kidx("build", *named, "--index-dir", self.root / "index", "--catalog", self.catalog, "--json", *options)

    def lose(self) -> None:
        """The log of `a` between its two others, with its index files."""
        (self.log_dir("a") / "orders-0" / segment_file(3, ".log")).unlink()
        for file in (self.root / "index" / "a" / "orders-0").glob(segment_file(3, ".*")):
            file.unlink()


@pytest.fixture
def site(tmp_path: Path) -> _Site:
    site = _Site(tmp_path)
    for source in "ab":
        for base_offset in (0, 3, 6):
            put(site.log_dir(source) / "orders-0", base_offset, [Batch(), Batch(), Batch()])
    built = site.build()
    assert (built.code, built.json["damage"]["gaps"]) == (0, []), built.err
    return site


def test_a_missing_log_is_found_wherever_it_is_looked_for(site: _Site) -> None:
    """By verify, build and the library; with a catalog also who knows the offsets, as another source or the catalog."""
    site.lose()
    log_dir = site.log_dir("a")
    alone = _kidx("verify", log_dir, "--json")
    assert (alone.code, _found(alone)) == (3, [(str(log_dir), "orders", 3, 5, "gap-unexplained")])
    [row] = [row for row in alone.json["files"] if row["file"] == GAP]
    assert (row["base_offset"], row["verdict"], row["detail"]) == (3, "broken", _DETAIL)
    shown = [line for line in _kidx("verify", log_dir).out.splitlines() if line.startswith("broken: orders-0: gap")]
    assert shown == [f"broken: orders-0: gap-unexplained: {_DETAIL}"]
    [partition] = audit_directory(log_dir).partitions
    assert [each.finding.reason for each in partition.findings if each.finding.file == GAP] == ["gap-unexplained"]
    once = _kidx("build", log_dir, "--index-dir", site.root / "other", "--json")
    assert (once.code, _found(once)) == (3, [(str(log_dir), "orders", 3, 5, "gap-unexplained")])

    expected = [("a", "orders", 3, 5, "gap")]
    by_catalog = _kidx("verify", "--source", f"a={log_dir}", "--catalog", site.catalog, "--json")
    assert (by_catalog.code, _found(by_catalog)) == (3, expected)
    known = [(each["who"], each["records"]) for each in by_catalog.json["gaps"][0]["known_by"]]
    assert known == [("source b", 3), ("the catalog", 3)]
    assert [row["reason"] for row in rows(site.catalog, "SELECT reason FROM findings WHERE file = 'gap'")] == ["gap"]
    assert _found(site.build("--dry-run")) == expected, "before it is recorded that the log is gone"
    report = _kidx("report", "--catalog", site.catalog, "--json")
    reported = json.loads(report.out)
    assert report.code == 3
    assert [row["reason"] for row in reported["health"]["lost_gaps"]] == ["gap"], "as the audit has seen it"
    [attention] = [row for row in reported["attention"] if row["place"] == "health/lost_gaps"]
    assert (attention["severity"], attention["title"]) == ("bad", "1 gap between logs")
    assert attention["is_missing"]
    for sources in ("a", "ab"):
        built = site.build(sources=sources)
        assert (built.code, _found(built)) == (3, expected), "whether this run has found it or an earlier one"


def test_a_log_under_another_name_is_named_wherever_its_offsets_are_missed(site: _Site) -> None:
    """Of the first logs, between two and at the end: what a broker's start removes may be the only copy, and is
    refused. It is no log that retention deletes: a broker that has stopped has cut the epochs there.
    """
    log_dir = site.log_dir_of_broker()
    commands: dict[str, tuple[str | Path, ...]] = {
        "verify": (log_dir,),
        "recover": (log_dir,),
        "build": (log_dir, "--index-dir", site.root / "other"),
        "seek": (log_dir, "--topic", "orders", "--partition", "0", "--timestamp", "-1"),
        "compare": (site.log_dir("b"), log_dir),
    }
    for base_offset, suffix, does in (
        (0, ".deleted", "removes it"),
        (0, ".bak", "does not load it"),
        (3, ".deleted", "removes it"),
        (3, ".cleaned", "removes it"),
        (6, ".bak", "does not load it"),
    ):
        log = log_dir / "orders-0" / segment_file(base_offset, ".log")
        aside = log.rename(f"{log}{suffix}")
        for name, options in commands.items():
            ended = _kidx(name, *options)
            text = f"{ended.out}{ended.err}"
            if name == "seek" and base_offset < 6:  # the end is there
                continue
            assert f"{aside} begins there: move it to {log}, with the other files of that offset" in text, name
            assert f"before the broker starts, which {does}" in text, name
            assert ended.code == (2 if name == "recover" else 3), (name, text)
        for options in ((), ("--accept-loss",), ("--accept-loss", "--apply")):
            ended = _kidx("recover", log_dir, *options)
            refused = [line for line in ended.out.splitlines() if line.startswith(f"refused: {log.parent}: ")]
            assert ended.code == 2 and any(f"{aside} begins there" in line for line in refused), options
        aside.rename(log)
    swap, cleaned = log.rename(f"{log}.swap"), log.with_name(segment_file(0, ".index.cleaned"))
    assert "begins there" not in _kidx("recover", log_dir).out, "it is put in place"
    cleaned.touch()
    assert f"{swap} begins there: move it to {log}" in _kidx("recover", log_dir).out
    cleaned.unlink()
    swap.rename(log)
    loose = log.rename(log_dir / log.name)  # the end of the partition, beside its directory
    for name in ("verify", "recover", "seek"):
        ended = _kidx(name, *commands[name])
        assert f"{loose} begins there: see by kidx dump" in f"{ended.out}{ended.err}", name
    loose.rename(log)
    assert "begins there" not in _kidx("recover", log_dir).out
    put(log_dir / "others-0", 0, [Batch()])
    for log in sorted((log_dir / "orders-0").glob("*.log")):  # nothing is left
        log.rename(f"{log}.deleted")
    for name in ("verify", "recover", "build", "seek"):
        ended = _kidx(name, *commands[name])
        first = log_dir / "orders-0" / segment_file(0, ".log.deleted")
        assert f"{first} begins there: move it to" in f"{ended.out}{ended.err}", name


@pytest.mark.parametrize(("state", "does"), [("delete", "removes it"), ("stray", "does not load it")])
def test_a_log_in_a_renamed_directory_is_named(site: _Site, state: str, does: str) -> None:
    """The lost end of a partition may be in a directory that a broker has set aside, and that nobody may lose by
    --accept-loss: not in that of an older topic.
    """
    log_dir = site.log_dir_of_broker()
    folder, log = log_dir / f"orders-0.{0:032x}-{state}", log_dir / "orders-0" / segment_file(6, ".log")
    folder.mkdir()
    moved = log.rename(folder / log.name)
    for options in ((), ("--accept-loss",)):
        ended = _kidx("recover", log_dir, *options)
        assert ended.code == 2 and f"{moved} begins there: see by kidx dump" in ended.out, options
        assert f"before the broker starts, which {does}" in ended.out, options
    (folder / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    log.with_name(PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id('o')}\n")
    assert "begins there" not in _kidx("recover", log_dir).out


def test_a_policy_of_the_metadata_decides(site: _Site) -> None:
    """With `compact` the cleaner may have made it; without it nothing explains it."""
    site.lose()
    log_dir = site.log_dir("a")
    for policy, code, counts in (("delete", 3, (1, 0)), ("compact", 0, (0, 1))):
        values = [topic("orders", OTHER_ID), config("orders", "cleanup.policy", policy)]
        node = write_copy(site.root / "node" / METADATA_DIRECTORY, {0: leader_change(0, [1]) + data(1, values)})
        ended = _kidx("verify", log_dir, "--cluster-metadata", node, "--index-dir", site.root / "index" / "a", "--json")
        assert (len(ended.json["gaps"]), len(ended.json["gaps_explained"])) == counts, ended.err
        evidence = [each["evidence"] for name in ("gaps", "gaps_explained") for each in ended.json[name]]
        assert (ended.code, evidence) == (code, ["cleanup-policy"])


def test_a_gap_that_is_accepted_fails_nothing_until_it_grows(site: _Site) -> None:
    """It is accepted by partition and offsets; builds and audits name it then, and do not count it."""
    site.lose()
    verify = ("--source", f"a={site.log_dir('a')}", "--catalog", site.catalog, "--index-dir", site.root / "index" / "a")
    assert site.build().code == 3
    of_catalog = ("--catalog", site.catalog, "--reason", "the copy is whole", "--by", "ann", "--apply")
    assert_refused(
        _kidx("accept", *of_catalog, "--gap", "orders-0/3"), "expected TOPIC-PARTITION/FIRST-LAST, as orders-"
    )
    assert_refused(
        _kidx("accept", *of_catalog, "--gap", "orders-0/3-4"), "no gap of these offsets is known to the cata"
    )
    accepted = _kidx("accept", *of_catalog, "--gap", "orders-0/3-5")
    assert (accepted.code, accepted.out.splitlines()[0]) == (0, f"accepted: a: orders-0/3-5: gap: {_DETAIL}")

    built = site.build()
    assert (built.code, built.json["damage"]["gaps"]) == (0, [])
    assert [each["accepted_by"] for each in built.json["damage"]["gaps_accepted"]] == ["ann"]
    audited = _kidx("verify", *verify)
    assert audited.code == 0, audited.out
    assert "  a: orders-0/3-5: gap (by ann at " in audited.out and "broken: orders-0: gap" not in audited.out
    told = _kidx("verify", *verify, "--json").json
    assert [(each["file"], each["accepted_by"]) for each in told["accepted_findings"]] == [(GAP, "ann")]
    report = _kidx("report", "--catalog", site.catalog, "--json")
    reported = json.loads(report.out)
    assert report.code == 0, "nor does what a replica lacks, if that is accepted"
    assert [(row["first_offset"], row["is_accepted"]) for row in reported["health"]["lost_gaps"]] == [(3, True)]
    assert not [row for row in reported["attention"] if row["place"] == "health/lost_gaps"]

    log = segment_file(3, ".log")
    back = site.log_dir("a") / "orders-0" / f"{log}.deleted"
    shutil.copy(site.log_dir("b") / "orders-0" / log, back)
    sources = (each for name in "ab" for each in ("--source", f"{name}={site.log_dir(name)}"))
    ended = _kidx("build", *sources, "--index-dir", site.root / "index", "--catalog", site.catalog)
    assert (ended.code, f"the gap is accepted, and {back} begins there: " in ended.out) == (0, True), ended
    back.unlink()

    (site.log_dir("a") / "orders-0" / segment_file(6, ".log")).unlink()
    put(site.log_dir("a") / "orders-0", 7, [Batch()])
    assert (site.build().code, _kidx("verify", *verify).code) == (3, 3)
