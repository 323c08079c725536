"""Index files that a catalog keeps (`build --pack`): the same bytes and answers as with single files, whatever is done
with them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib import open_partition
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import CATALOG_VERSION, TABLES
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.storage import packed
from kidxlib.storage.packed import PackedPath
from kidxlib.storage.packed_rows import packed_rows
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import append_rows, kept_catalog
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import Ended, kidx_here

#: Damaged logs have problems, of which builds and audits tell.
_OK: Final = (0, 3)
_SOURCE: Final = "archive"
_PACK: Final = ("--pack", "--snapshots", "--epochs")


def _kidx(*arguments: str | Path, code: int | tuple[int, ...] = 0) -> Ended:
    ended = kidx_here(*arguments)
    assert ended.code in ((code,) if isinstance(code, int) else code), ended
    return ended


class Both:
    """A log dir that is built twice, with index files and packed."""

    def __init__(self, directory: Path, log_dir: Path) -> None:
        self.log_dir, self.index_dir = log_dir, directory / "index"
        self.of_files, self.packed, self.unpacked = (directory / name for name in ("files", "packed", "unpacked"))

    def build(self, *options: str) -> None:
        source = ("--source", f"{_SOURCE}={self.log_dir}", "--snapshots", "--epochs", *options)
        _kidx("build", *source, "--catalog", self.of_files, "--index-dir", self.index_dir, code=_OK)
        _kidx("build", *source, "--catalog", self.packed, "--pack", code=_OK)

    def build_packed(self, *options: str) -> Ended:
        """Build the packed ones alone."""
        return _kidx(
            "build", "--source", f"{_SOURCE}={self.log_dir}", "--catalog", self.packed, *_PACK, *options, code=_OK
        )

    def unpack(self) -> dict[str, bytes]:
        """What unpacking writes into a new directory."""
        shutil.rmtree(self.unpacked, ignore_errors=True)
        _kidx("unpack", "--catalog", self.packed, "--index-dir", self.unpacked)
        return tree(self.unpacked)

    def assert_same(self) -> None:
        assert self.unpack() == tree(self.index_dir) != {}

    def told(self, *command: str | Path, code: int | tuple[int, ...] = _OK) -> list[Any]:
        """What a command says with each catalog, but for the places of index files and of catalogs."""
        places = {str(self.index_dir): "", str(PackedPath.of_source(str(self.packed), _SOURCE)): ""}
        told = []
        for catalog in (self.of_files, self.packed):
            said = _kidx(*command, "--catalog", catalog, "--json", code=code).out
            for place in (*places, str(catalog)):
                said = said.replace(place, "")
            told.append(json.loads(said))
        return told


def _built(directory: Path, *log_dirs: Path) -> Both:
    log_dir = directory / "kafka-logs"
    for partition in (path for log_dir in log_dirs for path in log_dir.iterdir() if path.is_dir()):
        shutil.copytree(partition, log_dir / partition.name)
    both = Both(directory, log_dir)
    both.build()
    return both


@pytest.fixture
def all_fixtures(tmp_path: Path) -> Both:
    """All formats, all damages, transactions, a compacted topic."""
    return _built(tmp_path, golden.DATA / "logs", golden.SAMPLES)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """The sample."""
    return _built(tmp_path, golden.SAMPLES)


def _targets(log_dir: Path, rng: random.Random) -> Iterator[dict[str, Any]]:
    for partition in sorted(log_dir.iterdir()):
        topic, _, number = partition.name.rpartition("-")
        bases = [int(path.stem) for path in partition.glob(f"*{LOG_SUFFIX}")]
        for base in bases:
            offset = base + rng.randrange(3000)
            yield {"topic": topic, "partition": int(number), "offset": offset, "timestamp": None}
            yield {"topic": topic, "partition": int(number), "offset": None, "timestamp": 1_700_000_000_000 + offset}


def test_unpacked_files_are_those_of_a_build_without_pack(all_fixtures: Both) -> None:
    """Of all fixtures, byte for byte; again nothing is written, and the next build reads nothing."""
    both = all_fixtures
    both.assert_same()
    again = _kidx("unpack", "--catalog", both.packed, "--index-dir", both.unpacked, "--json").json
    assert (again["written"], again["unchanged"]) == (0, len(tree(both.index_dir)))
    built = both.build_packed("--json")
    assert built.json["segments"] == 0 and built.json["rows_changed"] == 0
    built = both.build_packed("--rebuild", "--json")
    assert set(built.json["by_published"]) <= {"unchanged", "none", "kept"}


def test_answers_are_the_same(all_fixtures: Both, rng: random.Random, tmp_path: Path) -> None:
    """Of seeks, of audits, and of how long brokers start."""
    both = all_fixtures
    rows = list(_targets(both.log_dir, rng))
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = []
    for catalog in (both.of_files, both.packed):
        output = tmp_path / f"{catalog.name}.csv"
        _kidx("seek", "--catalog", catalog, "--queries", questions, "--output", output, code=_OK)
        answers.append(output.read_text().replace(str(both.index_dir), ""))
    assert answers[0] == answers[1].replace(str(PackedPath.of_source(str(both.packed), _SOURCE)), "")
    assert "true" in answers[0]
    for command in (
        ("verify", "--source", f"{_SOURCE}={both.log_dir}", "--deep-iteration"),
        ("fleet",),
    ):
        of_files, of_packed = both.told(*command)
        for told in (of_files, of_packed):
            for name in ("audit_id", "run_id", "seconds", "now"):
                told.pop(name, None)
        assert of_files == of_packed, command


def test_a_catalog_that_moves_takes_them_along(both: Both, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "catalog"
    moved.parent.mkdir()
    both.packed.rename(moved)
    both.packed = moved
    assert both.build_packed("--json").json["segments"] == 0
    question = ("--topic", "plain-zstd", "--partition", "0", "--offset", "9000")
    assert _kidx("seek", *question, "--catalog", moved, "--json").json["answers"][0]["found"]
    both.assert_same()


def test_the_library_opens_a_partition_by_them(both: Both) -> None:
    """A lookup by packed indexes reads what one by files reads; a later build is seen at once."""
    place = f"packed:{os.path.relpath(both.packed)}!/{_SOURCE}"
    for partition in golden.SAMPLES.iterdir():
        of_files = open_partition(both.log_dir / partition.name, both.index_dir)
        of_packed = open_partition(both.log_dir / partition.name, place)
        for mine, theirs in zip(of_packed.segments, of_files.segments, strict=True):
            assert mine.offset_index.to_bytes() == theirs.offset_index.to_bytes()
            assert mine.time_index.to_bytes() == theirs.time_index.to_bytes()
            assert mine.transaction_index.to_bytes() == theirs.transaction_index.to_bytes()
            assert mine.note is theirs.note is None
    both.build("--rebuild", "--interval-bytes", "512")
    denser = open_partition(both.log_dir / "plain-zstd-0", place).segments[0].offset_index.to_bytes()
    name = next((both.index_dir / "plain-zstd-0").glob("*.index")).name
    assert denser == min((both.index_dir / "plain-zstd-0").glob("*.index")).read_bytes(), name


def test_a_changed_log_makes_its_row_stale(both: Both) -> None:
    """As a file: a seek says that the log differs and answers no more than with files; the next build mends the row."""
    log = min((both.log_dir / "plain-zstd-0").glob(f"*{LOG_SUFFIX}"))
    log.write_bytes(log.read_bytes()[:-700])
    question = ("--topic", "plain-zstd", "--partition", "0", "--offset", "10", "--source", _SOURCE)
    of_files, of_packed = both.told("seek", *question, code=3)
    assert of_files == of_packed
    both.build()
    both.assert_same()


def test_bytes_without_their_checksum_are_not_used(both: Both, tmp_path: Path) -> None:
    """The answer comes from the log, with a note; an audit calls the file broken; unpack leaves it out, with 3."""
    tables = DeltaTables(str(both.packed))
    rows = tables.read(INDEX_BYTES)
    [victim] = [
        row for row in rows.to_pylist() if (row["topic"], row["kind"], row["base_offset"]) == ("plain-zstd", "index", 0)
    ]
    shutil.rmtree(both.packed / INDEX_BYTES.name)
    tables.make(INDEX_BYTES)
    others = [row for row in rows.to_pylist() if row != victim]
    append_rows(both.packed, INDEX_BYTES, *others, {**victim, "content": bytes(len(victim["content"]))})
    question = ("--topic", "plain-zstd", "--partition", "0", "--offset", "10", "--catalog", both.packed, "--json")
    answer = _kidx("seek", *question, code=3).json["answers"][0]
    assert answer["found"] and "answered from a scan of the log" in answer["note"]
    audit = _kidx(
        *("verify", "--source", f"{_SOURCE}={both.log_dir}", "--topics", "plain-zstd", "--catalog", both.packed), code=3
    )
    assert "unreadable" in audit.out, audit
    unpacked = _kidx("unpack", "--catalog", both.packed, "--index-dir", tmp_path / "some", "--json", code=3).json
    assert unpacked["not_well_count"] == 1
    missing = tree(both.index_dir).keys() - tree(tmp_path / "some").keys()
    assert missing == {f"plain-zstd-0/{packed.name_of(0, 'index')}"}


def test_nothing_is_unpacked_beside_a_log_that_has_changed(both: Both, tmp_path: Path) -> None:
    """A broker that has stopped cleanly believes index files, and these may lead behind the end of the log."""
    log = min((both.log_dir / "plain-zstd-0").glob(f"*{LOG_SUFFIX}"))
    os.truncate(log, log.stat().st_size - 1)
    unpack = ("unpack", "--catalog", both.packed, "--index-dir", tmp_path / "some", "--json")
    [line] = _kidx(*unpack, code=3).json["not_well"]
    assert line.startswith(f"{log}: ")
    others = {name for name in tree(both.index_dir) if not name.startswith("plain-zstd-0/")}
    assert tree(tmp_path / "some").keys() == others != set()
    both.build_packed()
    _kidx(*unpack)
    assert tree(tmp_path / "some").keys() > others


def test_compaction_changes_rows_as_it_changes_files(both: Both) -> None:
    """Sparser indexes, and orphans of logs that are gone."""
    for log in sorted((both.log_dir / "txn-mixed-0").glob(f"*{LOG_SUFFIX}"))[:1]:
        log.unlink()
    both.build()
    for catalog in (both.of_files, both.packed):
        _kidx("compact", "--catalog", catalog, "--interval-bytes", "65536", "--orphans", "--apply", code=_OK)
    files = tree(both.index_dir)
    both.assert_same()
    both.build()
    assert tree(both.index_dir) == files
    both.assert_same()


def test_retention_takes_rows_with_their_logs(both: Both, tmp_path: Path) -> None:
    policy, of_packed = tmp_path / "policy.toml", ("--catalog", both.packed)
    policy.write_text(
        'cleanup.policy = "delete"\nretention.ms = 1\nretention.bytes = -1\nremote.storage.enable = false\n'
    )
    plan = _kidx("retention", *of_packed, "--policy", policy, "--topics", "txn-mixed", "--json", code=_OK).json
    deletes = ("retention", *of_packed, "--apply", "--plan", plan["plan_id"], "--delete-delay", "0s", "--json")
    assert _kidx(*deletes, code=_OK).json["by_outcome"]["deleted"] > 0
    tables = DeltaTables(str(both.packed))
    left = {int(log.stem) for log in (both.log_dir / "txn-mixed-0").glob(f"*{LOG_SUFFIX}")}
    rows = tables.read(INDEX_BYTES, ["topic", "base_offset", "kind"]).to_pylist()
    indexed = {row["base_offset"] for row in rows if row["topic"] == "txn-mixed" and row["kind"] == "index"}
    assert indexed == left and len(left) == 1
    assert {row["topic"] for row in rows} == {path.name[:-2] for path in golden.SAMPLES.iterdir()}


def test_a_source_changes_between_files_and_rows(both: Both, tmp_path: Path) -> None:
    """A build that only settings lead elsewhere is refused; with --index-dir it writes files, and the rows go. Back
    again, the files stay."""
    source = ("--source", f"{_SOURCE}={both.log_dir}", "--catalog", both.packed)
    refused = _kidx("build", *source, code=2)
    assert "give --pack to go on there" in refused.err.splitlines()[-1]
    tables = DeltaTables(str(both.packed))
    _kidx("build", *source, "--index-dir", tmp_path / "own", "--snapshots", "--epochs", code=_OK)
    assert tree(tmp_path / "own") == tree(both.index_dir)
    assert tables.read(INDEX_BYTES, INDEX_BYTES.key).num_rows == 0
    back = both.build_packed()
    assert f"those in {tmp_path / 'own'} stay" in back.err
    both.assert_same()
    directories = tables.read(SEGMENTS, ["index_directory"])["index_directory"].to_pylist()
    assert {str(directory).partition("!")[0] for directory in directories} == {f"packed:{both.packed}"}


def test_a_forgotten_source_takes_its_rows_along(both: Both) -> None:
    other = ("--source", f"other={golden.SAMPLES}", "--catalog", both.packed, "--pack")
    _kidx("build", *other)
    _kidx("forget-source", _SOURCE, "--catalog", both.packed, "--apply")
    sources = DeltaTables(str(both.packed)).read(INDEX_BYTES, ["source"])["source"]
    assert set(sources.to_pylist()) == {"other"}
    _kidx("verify", *other[:4])


@pytest.mark.parametrize("option", [("--in-place",), ("--index-dir", "index")])
def test_files_go_to_one_place(option: tuple[str, ...], tmp_path: Path) -> None:
    refused = _kidx(
        "build", "--source", f"s={golden.SAMPLES}", "--catalog", tmp_path / "catalog", "--pack", *option, code=2
    )
    assert f"--pack and {option[0]}" in refused.err


def test_unpacked_files_are_those_of_generated_logs(tmp_path: Path, rng: random.Random, exhaustive: bool) -> None:
    """10,000 segments with --exhaustive: of any format, with gaps, some empty; in several data files and row groups."""
    log_dir, segments = tmp_path / "kafka-logs", 0
    log_dir.mkdir()
    while segments < (10_000 if exhaustive else 300):
        partition = log_dir / f"topic-{rng.randrange(20)}-{len(list(log_dir.iterdir()))}"
        write_random_log(partition, rng)
        segments += len(list(partition.glob(f"*{LOG_SUFFIX}")))
    both = Both(tmp_path, log_dir)
    both.build("--interval-bytes", "100")
    both.assert_same()


def test_a_catalog_of_an_older_release_gets_the_table(tmp_path: Path) -> None:
    """Until then it has no packed files, and commands that read it say so; its rows stay."""
    catalog = kept_catalog(9, tmp_path)
    tables = DeltaTables(str(catalog))
    before = tables.read(SEGMENTS).sort_by([(name, "ascending") for name in SEGMENTS.key])
    assert "it keeps no index files" in _kidx("unpack", "--catalog", catalog, "--index-dir", tmp_path / "u", code=2).err
    assert _kidx("forget-source", "sample", "--catalog", catalog, "--json").json["rows"][INDEX_BYTES.name] == 0
    _kidx("build", "--source", f"{_SOURCE}={golden.SAMPLES}", "--catalog", catalog, *_PACK)
    assert {tables.catalog_version(table) for table in TABLES} == {CATALOG_VERSION}
    old = tables.read(SEGMENTS, where=[Among("source", (_SOURCE,), negated=True)])
    assert old.sort_by([(name, "ascending") for name in SEGMENTS.key]).equals(before)
    _kidx("unpack", "--catalog", catalog, "--index-dir", tmp_path / "u")
    kept = kept_catalog(10, tmp_path / "ten")
    _kidx("unpack", "--catalog", kept, "--index-dir", tmp_path / "of-ten")
    assert tree(tmp_path / "u") == tree(tmp_path / "of-ten") != {}


def test_columns_are_those_that_are_read() -> None:
    """The reader stands below the catalog's tables, and names the columns itself."""
    assert INDEX_BYTES.name == packed.TABLE
    assert INDEX_BYTES.key == packed.KEY
    assert INDEX_BYTES.column_names == [*packed.KEY, packed.SIZE, packed.CRC, packed.CONTENT]
    assert INDEX_BYTES.schema().field(packed.CONTENT).type == pa.binary()


def test_a_table_that_cannot_be_read_is_named(both: Both) -> None:
    """In one line with what to do, which helps: what it has can be made again."""
    table, seek = both.packed / INDEX_BYTES.name, ("seek", "--topic", "plain-zstd", "--partition", "0", "--offset", "1")

    def assert_told(*command: str) -> None:
        packed_rows.cache_clear()
        ended = _kidx(*command, "--catalog", both.packed, code=(1, 3))
        assert "cannot be read: " in ended.out + ended.err, ended
        assert "if it is damaged, remove it, and build with --pack" in ended.out + ended.err, ended

    for file in table.glob("*.parquet"):
        content = file.read_bytes()
        file.write_bytes(content[:4] + bytes(len(content) - 204) + content[-200:])
    assert_told(*seek)
    assert_told("verify", "--source", f"{_SOURCE}={both.log_dir}")
    for file in table.glob("*.parquet"):
        file.unlink()
    assert_told(*seek)
    shutil.rmtree(table)
    _kidx("build", "--source", f"{_SOURCE}={both.log_dir}", "--catalog", both.packed, *_PACK)
    both.assert_same()
