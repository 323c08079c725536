"""Damage that is known stays visible: at every build, in every dry run and figure, until it is mended or accepted."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.audit.gaps import Directories
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.rows import SEGMENT_KEY, Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.indexing.known_segments import KEYS
from kidxlib.operations.damage import acceptances
from kidxlib.operations.damage.acceptance_rule import findings_of, match_acceptances
from kidxlib.operations.damage.acceptances import Damage
from kidxlib.operations.damage.damaged_segments import known_damage
from kidxlib.operations.report import questions
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.log_dirs import put
from tests.support.catalog import filled
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, kidx_build_here, rows, run_here


class Scene:
    """Two sources, `a` and `b`, and how builds of them end."""

    def __init__(self, root: Path) -> None:
        self.root, self.catalog, self.metrics = root, root / "catalog", root / "kidx.prom"
        for source in ("a", "b"):
            for topic in ("orders", "payments"):
                for base_offset in (0, 3):
                    put(root / source / f"{topic}-0", base_offset, [Batch(), Batch(), Batch()])
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
    assert (
        reported.startswith(f"damaged: 2 segments of the catalog; the first is {truncated}")
        and "crc-mismatch" in reported
    )
    assert "kidx accept" in second.out and scene.figures() == both
    dry = scene.build("--dry-run", "--topics", "orders|nothing")
    assert dry.code == 3 and lines(dry, "damaged: 1 segment of the catalog; "), "of the topics that were asked for"
    assert scene.figures() == both, "of the whole catalog, whatever was asked for"
    nowhere = ("--source", scene.root / "nowhere", "--catalog", scene.catalog)
    refused = kidx_build_here(*nowhere, "--metrics-file", scene.metrics)
    assert refused.code == 2 and scene.figures() == both, "a run that does nothing mends nothing"

    one = ("--segment", "orders-0/0", "--source", "a", "--reason", "replica on b is whole", "--by", "ann", "--apply")
    done = run_here(kidx, "accept", "--catalog", scene.catalog, *one)
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
    assert run_here(kidx, "verify", *sources, *catalog).code == 3
    found = f"the first is broken: {scene.broken}: byte 0: crc-mismatch"
    found = f"broken: 1 segment by the last audit, and not read again, as no log has changed; {found}"
    for more in ((), ("--dry-run",)):
        ended = scene.build(*more)
        assert ended.code == 3 and [line[: len(found)] for line in lines(ended, "broken: ")] == [found]
    assert scene.build("--topics", "payments").code == 0
    reported = run_here(kidx, "report", *catalog, "--output", scene.root / "page.html")
    assert reported.code == 3 and lines(reported, "bad: 1 file broken: orders-0/")

    one = ("--segment", "orders-0/0", "--source", "a", "--reason", "a replica has it", "--by", "ann", "--apply")
    assert run_here(kidx, "accept", *catalog, *one).code == 0
    assert scene.build().code == 0 and not lines(scene.build(), "broken: ")
    assert run_here(kidx, "report", *catalog, "--output", scene.root / "page.html").code == 0
    assert run_here(kidx, "accept", *catalog, *one[:4], "--withdraw", "--apply").code == 0
    assert scene.build().code == 3

    flip(scene.broken, 30)
    os.utime(scene.broken)
    assert scene.build("--dry-run").code == 0, "it would be read"
    assert scene.build().code == 0


def _the_rest_of_an_acceptances_life(catalog: DeltaTables) -> None:
    """It holds for this log with this damage alone; it can be renewed, and withdrawn."""
    selected = acceptances.Selected(segments=(), gaps=(), topics=re.compile("orders"))
    a = ("a",)

    def damages() -> list[Damage]:
        return acceptances.damage_now(catalog, a, selected, (), Directories())

    def orders() -> tuple[int, int]:
        """Damaged and accepted ones."""
        found = known_damage(catalog, a, re.compile("orders"))
        return found.damaged, found.accepted

    def set_row(assignment: str) -> None:
        column, _, value = assignment.partition(" = ")
        DeltaTable(f"{catalog.path}/{SEGMENTS.name}").update({column: value}, predicate="source = 'a'")

    assert orders() == (0, 1)
    [acceptance] = acceptances.accepted(catalog, a, selected)
    [damage] = damages()
    assert damage == acceptance.damage and acceptance in acceptances.still_accepted(catalog, a)
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
    acceptances.accept(catalog, [damage], "bob", acceptance.accepted_at, "looked again")
    assert orders() == (0, 1)
    [acceptance] = acceptances.accepted(catalog, a, selected)
    assert (acceptance.accepted_by, acceptance.accepted_reason) == ("bob", "looked again")
    gone = pa.Table.from_pylist([dict(zip(SEGMENT_KEY, ("a", "orders", 0, 0), strict=True))], KEYS)
    assert known_damage(catalog, a, re.compile("orders"), gone).accepted == 0, "a listing does not find it"
    accepted = Path(catalog.path, "accepted").rename(Path(catalog.path, "later"))
    assert orders() == (1, 0), "a catalog of a release that had no such table"
    accepted.rename(Path(catalog.path, "accepted"))
    acceptances.withdraw(catalog, [acceptance])
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
    rule = match_acceptances(findings_of(found), findings_of(accepted))
    assert (rule.is_accepted.tolist(), rule.knows_consequence.tolist()) == (covered, covered)
    other = match_acceptances(
        findings_of({**row, "consequence": "and deletes 2 segments after it"} for row in found), findings_of(accepted)
    )
    gaps = [row["file"] == "gap" for row in found]
    assert other.is_accepted.tolist() == covered
    assert other.knows_consequence.tolist() == [one and is_gap for one, is_gap in zip(covered, gaps, strict=True)]

    tables = DeltaTables(str(tmp_path))
    _append(tables, ACCEPTED, accepted)
    _append(tables, FINDINGS, [{**row, "verdict": row["found"]} for row in found])
    names = {"found": "status", "position": "reason_position", "path": "log_path", "detail": "reason_detail"}
    names |= {"file_bytes": "log_bytes", "file_mtime_ns": "log_mtime_ns", "file_inode": "log_inode"}
    segments = [{names.get(name, name): value for name, value in row.items() if name != "file"} for row in found]
    _append(tables, SEGMENTS, segments)
    by_audit = {number for number, row in enumerate(found) if row["found"] in ("broken", "torn")}
    of_logs = {number for number, is_gap in enumerate(gaps) if not is_gap}
    for question, numbers in ((questions.LOCAL_FINDINGS, by_audit), (questions.DAMAGED, of_logs)):
        answer = {row["base_offset"]: row["is_accepted"] for row in tables.ask(question).to_pylist()}
        assert {number: answer[number] for number in numbers} == {number: covered[number] for number in numbers}


def _append(tables: DeltaTables, table: Table, rows: list[dict[str, Any]]) -> None:
    names = set(table.column_names)
    kept = [filled(table.schema(), {name: row[name] for name in row.keys() & names}) for row in rows]
    tables.append(table, pa.Table.from_pylist(kept, table.schema()))


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
    ended = run_here(kidx, "accept", "--catalog", tmp_path / "catalog", *arguments)
    [line] = ended.err.splitlines()
    assert ended.code == 2 and message in line
