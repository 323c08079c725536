"""Damage that is known stays visible: at every build, in every dry run and figure, until it is mended or accepted."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from kidxlib import audit_directory
from kidxlib.audit.gaps import GAP, GapEvidence
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.known_segments import KEYS
from kidxlib.operations.damage.acceptances import (
    AcceptableDamage,
    Selected,
    findings_of_rows,
    match_acceptances,
    record_acceptances,
    recorded_acceptances,
    still_accepted,
    withdraw_acceptances,
)
from kidxlib.operations.damage.known_damage import damage_now, known_damage
from kidxlib.operations.report import questions
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.log_dirs import put
from tests.jobs.archive import assert_refused
from tests.support.catalog import append_rows
from tests.support.cluster_metadata import OTHER_ID, config, put_metadata, topic, topic_id
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, kidx_build_here, rows
from tests.support.spark.jobs import kidx_here as _kidx


class Scene:
    """Two sources, `a` and `b`, and how builds of them end."""

    def __init__(self, root: Path) -> None:
        self.root, self.catalog, self.metrics = root, root / "catalog", root / "kidx.prom"
        for source in ("a", "b"):
            for name in ("orders", "payments"):
                for base_offset in (0, 3):
                    put(root / source / f"{name}-0", base_offset, [Batch(), Batch(), Batch()])
        self.broken = root / "a" / "orders-0" / segment_file(0, LOG_SUFFIX)
        self.other = root / "b" / "payments-0" / segment_file(3, LOG_SUFFIX)

    def build(self, *arguments: str | Path) -> Ended:
        ended = kidx_build_here(
            *("--source", f"a={self.root}/a", "--source", f"b={self.root}/b", "--index-dir", self.root / "index"),
            *("--catalog", self.catalog, "--metrics-file", self.metrics, *arguments),
        )
        assert ended.code in (0, 3), ended.err
        return ended

    def figures(self) -> dict[tuple[str, str], float]:
        """`kidx_catalog_segments` by source and status, but for zeros and what is whole."""
        return {
            (sample.labels["source"], sample.labels["status"]): sample.value
            for family in text_string_to_metric_families(self.metrics.read_text())
            for sample in family.samples
            if sample.name == "kidx_catalog_segments" and sample.value and sample.labels["status"] != "ok"
        }


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def flip(path: Path, position: int) -> None:
    """Invert a byte, and keep the times: as a disk does."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def lines(ended: Ended, beginning: str) -> list[str]:
    return [line for line in ended.out.splitlines() if line.startswith(beginning)]


def test_damage_is_told_at_every_run_until_it_is_accepted(scene: Scene) -> None:
    """Two corrupt logs, run after run: in the exit code, on screen, in JSON and in the figures. One is then accepted,
    and the other's source is not mounted.
    """
    flip(scene.broken, 30)
    flip(scene.other, 30)
    truncated = f"truncated: {scene.broken}: byte "
    first = scene.build()
    assert first.code == 3 and len(lines(first, truncated)) == 1
    assert lines(first, "damaged: ") == ["damaged: 2 segments of the catalog; the first is named above"]
    both = {("a", "truncated"): 1.0, ("b", "truncated"): 1.0}
    assert scene.figures() == both

    second = scene.build()
    assert second.code == 3, "nothing was read, and nothing is mended"
    [reported] = lines(second, "damaged: ")
    assert reported.startswith(f"damaged: 2 segments of the catalog; the first is {truncated}"), reported
    assert "crc-mismatch" in reported
    assert "kidx accept" in second.out and scene.figures() == both
    dry = scene.build("--dry-run", "--topics", "orders|nothing")
    assert dry.code == 3 and lines(dry, "damaged: 1 segment of the catalog; "), "of the topics that were asked for"
    assert scene.figures() == both, "of the whole catalog, whatever was asked for"
    nowhere = ("--source", scene.root / "nowhere", "--catalog", scene.catalog)
    refused = kidx_build_here(*nowhere, "--metrics-file", scene.metrics)
    assert refused.code == 2 and scene.figures() == both, "a run that does nothing mends nothing"

    one = ("--segment", "orders-0/0", "--source", "a", "--reason", "replica on b is whole", "--by", "ann", "--apply")
    done = _kidx("accept", "--catalog", scene.catalog, *one)
    assert done.code == 0 and len(lines(done, "accepted: a: orders-0/0 .log: truncated: crc-mismatch")) == 1, done.err
    [row] = rows(scene.catalog, "SELECT * FROM accepted")
    assert (row["accepted_by"], row["accepted_reason"]) == ("ann", "replica on b is whole")
    status = scene.broken.stat()
    assert (row["file_bytes"], row["file_inode"]) == (status.st_size, status.st_ino)

    (scene.root / "b").rename(scene.root / "unmounted")
    (scene.root / "b").mkdir()
    ended = scene.build("--rebuild", "--json")
    assert (ended.code, ended.json["not_well_count"], ended.json["gone"]) == (3, 1, 0), ended.err
    assert "b: no segment found, but the catalog has 4 of source b" in ended.err
    damage = ended.json["damage"]
    assert (damage["damaged"], damage["accepted"]) == (1, 1)
    other, accepted = damage["segments"]
    assert (other["log_path"], other["accepted_by"]) == (str(scene.other), None)
    assert (accepted["status"], accepted["accepted_by"]) == ("truncated", "ann")
    assert scene.figures() == {("a", "accepted"): 1.0, ("b", "truncated"): 1.0}

    _the_rest_of_an_acceptances_life(DeltaTables(str(scene.catalog)))


def test_what_an_audit_found_stays_visible_though_no_build_reads_it_again(scene: Scene) -> None:
    """A byte changes on the disk after the build, and neither size nor time. So it is for builds, dry runs and the
    report, until somebody accepts it or the log is another.
    """
    assert scene.build().code == 0
    flip(scene.broken, 30)
    assert scene.build().code == 0, "nothing was read, and nobody has looked"
    catalog, sources = ("--catalog", scene.catalog), ("--source", f"a={scene.root}/a", "--source", f"b={scene.root}/b")
    assert _kidx("verify", *sources, *catalog).code == 3
    found = f"the first is broken: {scene.broken}: byte 0: crc-mismatch"
    found = f"broken: 1 segment by the last audit, and not read again, as no log has changed; {found}"
    for more in ((), ("--dry-run",)):
        ended = scene.build(*more)
        assert ended.code == 3 and [line[: len(found)] for line in lines(ended, "broken: ")] == [found]
    assert scene.build("--topics", "payments").code == 0
    reported = _kidx("report", *catalog, "--output", scene.root / "page.html")
    assert reported.code == 3 and lines(reported, "bad: 1 file broken: orders-0/")

    one = ("--segment", "orders-0/0", "--source", "a", "--reason", "a replica has it", "--by", "ann", "--apply")
    assert _kidx("accept", *catalog, *one).code == 0
    assert scene.build().code == 0 and not lines(scene.build(), "broken: ")
    assert _kidx("report", *catalog, "--output", scene.root / "page.html").code == 0
    assert _kidx("accept", *catalog, *one[:4], "--withdraw", "--apply").code == 0
    assert scene.build().code == 3

    flip(scene.broken, 30)
    os.utime(scene.broken)
    assert scene.build("--dry-run").code == 0, "it would be read"
    assert scene.build().code == 0


def _the_rest_of_an_acceptances_life(catalog: DeltaTables) -> None:
    """It holds for this log with this damage alone; it can be renewed, and withdrawn."""
    selected = Selected(segments=(), gaps=(), topics=re.compile("orders"))
    a = ("a",)

    def damages() -> list[AcceptableDamage]:
        return damage_now(catalog, a, selected, (), GapEvidence())

    def orders() -> tuple[int, int]:
        """Damaged and accepted ones."""
        found = known_damage(catalog, a, re.compile("orders"))
        return found.damaged, found.accepted

    def set_row(assignment: str) -> None:
        column, _, value = assignment.partition(" = ")
        DeltaTable(f"{catalog.path}/{SEGMENTS.name}").update({column: value}, predicate="source = 'a'")

    assert orders() == (0, 1)
    [acceptance] = recorded_acceptances(catalog, a, selected)
    [damage] = damages()
    assert damage == acceptance.damage and acceptance in still_accepted(catalog, a)
    for change in ("log_bytes = log_bytes + {}", "log_mtime_ns = log_mtime_ns + {}", "reason_position = {}"):
        set_row(change.format(1))
        assert orders() == (1, 0), f"{change}: nobody has looked at that"
        set_row(change.format(-1) if "+" in change else f"reason_position = {damage.position}")
        assert orders() == (0, 1)
    set_row("log_path = '/moved' || log_path")
    assert orders() == (1, 0), "the file of another directory"
    set_row("log_path = replace(log_path, '/moved', '')")
    assert orders() == (0, 1)
    set_row("log_inode = log_inode + 1")
    [damage] = damages()
    record_acceptances(catalog, [damage], "bob", acceptance.accepted_at, "looked again")
    assert orders() == (0, 1)
    [acceptance] = recorded_acceptances(catalog, a, selected)
    assert (acceptance.accepted_by, acceptance.accepted_reason) == ("bob", "looked again")
    gone = pa.Table.from_pylist([dict(zip(SEGMENT_KEY, ("a", "orders", 0, 0), strict=True))], KEYS)
    assert known_damage(catalog, a, re.compile("orders"), gone).accepted == 0, "a listing does not find it"
    accepted = Path(catalog.path, "accepted").rename(Path(catalog.path, "later"))
    assert orders() == (1, 0), "a catalog of a release that had no such table"
    accepted.rename(Path(catalog.path, "accepted"))
    withdraw_acceptances(catalog, [acceptance])
    assert orders() == (1, 0) and known_damage(catalog, a, re.compile("payments")).damaged == 0
    set_row("status = 'ok'")
    found = known_damage(catalog, ("a", "b"), re.compile("orders"))
    assert (found.damaged, found.listed) == (0, []) and found.segments["b", "truncated"] == 1


_FILE: Final[dict[str, Any]] = {"file_bytes": 9, "file_mtime_ns": 8, "file_inode": 7, "path": "/a/0.log"}
_FINDING: Final[dict[str, Any]] = {"file": ".log", "reason": "crc-mismatch", **_FILE, "position": 30, "detail": "d"}
_GAP: Final[dict[str, Any]] = {"file": "gap", "position": None, "detail": "offsets 5 to 9", "path": "/a/5.log"}
_TRUNCATED, _BROKEN, _TORN = ({"found": each} for each in ("truncated", "broken", "torn"))
#: What is another in the acceptance, and in what is found; and whether the one covers the other.
_COVERED: Final[list[tuple[dict[str, Any], dict[str, Any], bool]]] = [
    (_TRUNCATED, _BROKEN, True),
    (_TRUNCATED, _TORN, True),
    (_TRUNCATED, _TRUNCATED, True),
    (_BROKEN, _BROKEN, True),
    (_BROKEN, _TRUNCATED, True),
    (_TORN, _TORN, True),
    (_TORN, _BROKEN, False),
    (_TORN, {"found": "quarantined"}, True),
    (_BROKEN, {**_BROKEN, "position": 29}, False),
    (_TRUNCATED, {**_TRUNCATED, "position": None}, False),
    ({**_BROKEN, "position": None, "reason": "missing"}, {**_BROKEN, "position": None, "reason": "missing"}, True),
    (_BROKEN, {**_BROKEN, "reason": "unknown-magic"}, False),
    (_TRUNCATED, {**_TRUNCATED, "path": "/b/0.log"}, False),
    (_BROKEN, {**_BROKEN, "file_mtime_ns": 9}, False),
    (_TRUNCATED, {**_TRUNCATED, "file_bytes": 10}, False),
    (_BROKEN, {**_BROKEN, "file_inode": None}, False),
    ({**_BROKEN, "file_inode": None}, {**_BROKEN, "file_inode": None}, True),
    (_BROKEN, {**_BROKEN, "detail": "another"}, True),
    (_BROKEN, {**_BROKEN, "detail": "x; also unknown-magic at byte 3: y"}, False),
    ({**_BROKEN, "detail": "x; also z"}, {**_BROKEN, "detail": "x; also z"}, True),
    ({**_BROKEN, "detail": "x; also z"}, {**_BROKEN, "detail": "x; also zz"}, False),
    ({**_BROKEN, **_GAP, "reason": "gap"}, {**_BROKEN, **_GAP, "reason": "gap-unexplained"}, True),
    ({**_BROKEN, **_GAP, "reason": "gap"}, {**_BROKEN, **_GAP, "reason": "gap", "path": "/b/5.log"}, True),
    ({**_BROKEN, **_GAP, "reason": "gap"}, {**_BROKEN, **_GAP, "reason": "gap", "detail": "offsets 5 to 8"}, False),
]


def test_an_acceptance_covers_what_was_accepted_and_nothing_else(tmp_path: Path) -> None:
    """The same file in the same state, with the same byte, no worse, and nothing besides: by the rule, and by the
    report's questions, which are made from it.
    """
    accepted, found = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, (of_acceptance, of_finding, _) in enumerate(_COVERED):
        key = {"source": "a", "topic": "orders", "partition": 0, "base_offset": number, "consequence": "c"}
        accepted.append({**key, **_FINDING, **of_acceptance})
        found.append({**key, **_FINDING, **of_finding})
    covered = [each for _, _, each in _COVERED]
    rule = match_acceptances(findings_of_rows(found), findings_of_rows(accepted))
    assert (rule.is_accepted.tolist(), rule.knows_consequence.tolist()) == (covered, covered)
    with_other = ({**row, "consequence": "and deletes 2 segments after it"} for row in found)
    other = match_acceptances(findings_of_rows(with_other), findings_of_rows(accepted))
    gaps = [row["file"] == "gap" for row in found]
    assert other.is_accepted.tolist() == covered
    assert other.knows_consequence.tolist() == [one and is_gap for one, is_gap in zip(covered, gaps, strict=True)]

    append_rows(tmp_path, ACCEPTED, *accepted)
    append_rows(tmp_path, FINDINGS, *({**row, "verdict": row["found"]} for row in found))
    names = {"found": "status", "position": "reason_position", "path": "log_path", "detail": "reason_detail"}
    names |= {"file_bytes": "log_bytes", "file_mtime_ns": "log_mtime_ns", "file_inode": "log_inode"}
    segments = ({names.get(name, name): value for name, value in row.items()} for row in found)
    append_rows(tmp_path, SEGMENTS, *segments)
    by_audit = {number for number, row in enumerate(found) if row["found"] in ("broken", "torn")}
    of_logs = {number for number, is_gap in enumerate(gaps) if not is_gap}
    tables = DeltaTables(str(tmp_path))
    for question, numbers in ((questions.LOCAL_FINDINGS, by_audit), (questions.DAMAGED, of_logs)):
        answer = {row["base_offset"]: row["is_accepted"] for row in tables.ask(question).to_pylist()}
        assert {number: answer[number] for number in numbers} == {number: covered[number] for number in numbers}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--segment", "orders-0"], "--segment orders-0: expected TOPIC-PARTITION/BASE_OFFSET"),
        (["--apply", "--segment", "orders-0/0"], "--reason"),
        (["--apply", "--segment", "orders-0/0", "--reason", " "], "--reason"),
        (["--apply", "--reason", "why not"], "name what is meant"),
        (["--withdraw", "--reason", "why not"], "--withdraw and --reason"),
        (["--topics", "("], "not a regular expression"),
        ([], "no catalog there"),
    ],
)
def test_an_acceptance_that_does_not_say_what_or_why_is_refused(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    ended = _kidx("accept", "--catalog", tmp_path / "catalog", *arguments)
    [line] = ended.err.splitlines()
    assert ended.code == 2 and message in line


_DETAIL = "offsets 3 to 5 are in no log (3 offsets)"


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
        node = put_metadata(site.root / "node", values)
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
    not_known = "no gap of these offsets is known to the cata"
    for gap, why in (("3", "expected TOPIC-PARTITION/FIRST-LAST, as orders-"), ("3-4", not_known)):
        assert_refused(_kidx("accept", *of_catalog, "--gap", f"orders-0/{gap}"), why)
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
