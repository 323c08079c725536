"""A build by Spark, and by kidx without it: Kafka's bytes, the catalog's rows, and only what changed is read."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.batches import Batch, encode
from tests.support.logs.snapshots import producers_in
from tests.support.opened_files import OpenedFiles
from tests.support.spark.jobs import Ended, RunHere, build, build_here, kidx_build_here, rows

TOPICS_OF_THE_SAMPLE = ["__transaction_state", "append-time", "compacted", "plain-zstd", "txn-mixed"]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A copy of the sample log dir that a test may change."""
    return Path(shutil.copytree(golden.SAMPLES, tmp_path / "kafka-logs"))


class Place:
    """Where one test builds to, and who builds: `build_index` or `kidx build`."""

    def __init__(self, directory: Path, run: RunHere) -> None:
        self.index_dir, self.catalog, self.run = directory / "index", directory / "catalog", run

    def beside(self, name: str) -> Place:
        return Place(self.index_dir.parent / name, self.run)

    def build(self, *arguments: str | Path) -> Ended:
        ended = self.run("--index-dir", self.index_dir, "--catalog", self.catalog, "--json", *arguments)
        assert ended.code in (0, 3), ended.err
        return ended

    def segments(self, where: str = "true") -> list[dict[str, Any]]:
        return rows(
            self.catalog, f"SELECT * FROM segments WHERE {where} ORDER BY source, topic, partition, base_offset"
        )

    def aborted(self) -> list[dict[str, Any]]:
        """Aborted transactions in the order of their files' paths, and of the entries in them."""
        found = rows(self.catalog, "SELECT * FROM aborted_transactions")
        return sorted(
            found, key=lambda row: (f"{row['topic']}-{row['partition']}", row["base_offset"], row["last_offset"])
        )


def as_entry(row: dict[str, Any]) -> bytes:
    """A row of `aborted_transactions` as an entry of a `.txnindex`."""
    numbers = (row["producer_id"], row["first_offset"], row["last_offset"], row["last_stable_offset"])
    return bytes(2) + b"".join(number.to_bytes(8) for number in numbers)


#: What each engine does in its own way; the rest of a build is one code, and tests/jobs/build/test_engines.py compares.
by_both = pytest.mark.parametrize("run_build", [build_here, kidx_build_here], ids=["spark", "kidx"])


@pytest.fixture
def run_build() -> RunHere:
    """The quicker engine."""
    return kidx_build_here


@pytest.fixture
def place(tmp_path: Path, run_build: RunHere) -> Place:
    return Place(tmp_path, run_build)


def read_while_building(place: Place, log_dir: Path, *arguments: str | Path) -> tuple[Ended, list[str]]:
    """Build, and say which logs were opened meanwhile, as <directory>/<base offset>."""
    with OpenedFiles(directory for directory in log_dir.iterdir() if directory.is_dir()) as opened:
        ended = place.build("--source", f"broker={log_dir}", *arguments)
    return ended, [f"{path.parent.name}/{int(path.stem)}" for path in opened.logs()]


@by_both
def test_every_golden_segment_gets_kafkas_bytes_and_a_row_that_says_how_it_ended(
    place: Place, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """All golden directories as one log dir, one of them with an interval of its own, through the job as it stands."""
    more = pytestconfig.getoption("golden")
    segments = {segment.log: segment for segment in golden.committed()}
    for segment in golden.found_below(Path(more)) if more else []:
        segments.setdefault(segment.log, segment)
    by_directory = {segment.log.parent.name: segment.log.parent for segment in segments.values()}
    log_dir = tmp_path / "kafka-logs"
    for name, directory in by_directory.items():
        shutil.copytree(directory, log_dir / name)
    settings = tmp_path / "settings.toml"
    settings.write_text('[[topic]]\nmatch = "small-interval"\ninterval_bytes = 512\n')

    ended = place.build("--source", f"golden={log_dir}", "--settings", settings, "--snapshots", "--epochs")

    expected = [segment for segment in segments.values() if by_directory[segment.log.parent.name] == segment.log.parent]
    found = {(row["topic"], row["base_offset"]): row for row in place.segments()}
    aborted = 0
    for segment in expected:
        partition = segment.log.parent.name
        row = found.pop((partition.rpartition("-")[0], segment.base_offset))
        made = tree(place.index_dir / partition, f"{segment.base_offset:020d}.*")
        snapshot = made.pop(f"{segment.base_offset:020d}.snapshot", None)
        assert made == segment.indexes, segment.name
        assert row["transaction_index_bytes"] == (segment.transaction_index and len(segment.transaction_index))
        aborted += row["aborted_transactions"]
        if segment.snapshot is not None:
            assert snapshot and producers_in(snapshot) == producers_in(segment.snapshot), segment.name
        checkpoint = place.index_dir / partition / "leader-epoch-checkpoint"
        assert checkpoint.read_bytes() == segment.leader_epoch_checkpoint, segment.name
        assert row["log_bytes"] - row["valid_bytes"] == segment.truncated_bytes, segment.name
        assert row["status"] == ("truncated" if segment.truncated_bytes else "ok"), segment.name
        assert (row["reason"] is None) == (row["status"] == "ok"), segment.name
        assert row["interval_bytes"] == segment.options.interval_bytes, segment.name
    assert not found
    assert ended.code == 3
    assert ended.json["aborted_transactions"] == aborted == len(place.aborted()) > 30
    in_files = b"".join(path.read_bytes() for path in sorted(place.index_dir.rglob("*.txnindex")))
    assert in_files == b"".join(as_entry(row) for row in place.aborted())
    assert ended.json["not_well_count"] == sum(segment.truncated_bytes > 0 for segment in expected)
    assert ended.json["damage"]["damaged"] == ended.json["not_well_count"] == len(ended.json["damage"]["segments"])


def test_a_second_build_opens_no_log_and_changes_no_row(place: Place, log_dir: Path) -> None:
    """Nothing has changed, so nothing is read, no file is written and no commit is made to `segments`. What another run
    has staged just now stays, whatever time this one is given: what is swept goes by the clock.
    """
    first, opened = read_while_building(place, log_dir)
    assert len(opened) == first.json["segments"] == 12
    staged = place.index_dir / "compacted-0" / f".kidx-0-{segment_file(0, OFFSET_INDEX_SUFFIX)}.tmp"
    staged.write_bytes(b"of a run that works now")
    (place.catalog / "_staging" / "of-it").mkdir(parents=True)
    files, version = tree(place.index_dir), DeltaTable(place.catalog / "segments").version()

    second, opened = read_while_building(place, log_dir, "--now", "2099-01-01T00:00Z")

    assert opened == []
    assert (second.code, second.json["segments"], second.json["unchanged"]) == (0, 0, 12)
    assert (first.json["new_catalog"], second.json["new_catalog"]) == (True, False)
    options = second.json["options"]
    assert (options["rebuild"], options["verify_crc"], options["interval_bytes"]) == (False, True, None)
    [recorded] = rows(place.catalog, f"SELECT options FROM builds WHERE build_id = '{second.json['build_id']}'")
    assert dict(recorded["options"]) == {
        name: value if value is None or isinstance(value, str) else json.dumps(value) for name, value in options.items()
    }
    assert tree(place.index_dir) == files
    assert DeltaTable(place.catalog / "segments").version() == version
    assert [row["segments"] for row in rows(place.catalog, "SELECT * FROM builds ORDER BY started_at")] == [12, 0]
    assert [path.name for path in place.catalog.glob("_staging/*")] == ["of-it"]


def test_only_what_changed_is_read_again(place: Place, log_dir: Path) -> None:
    """Each kind of change, one after the other: the logs opened are those of the change, and the catalog follows."""
    read_while_building(place, log_dir)

    # A segment grows; one is deleted by retention; one partition directory goes; an index file is lost.
    active = sorted((log_dir / "plain-zstd-0").glob("*.log"))[-1]
    whole = active.read_bytes()
    active.write_bytes(whole[: len(whole) // 2])
    oldest = sorted((log_dir / "txn-mixed-0").glob("*.log"))[0]
    oldest.unlink()
    shutil.rmtree(log_dir / "append-time-0")
    lost = sorted(place.index_dir.glob("compacted-0/*.timeindex"))[1]
    lost.unlink()
    ended, opened = read_while_building(place, log_dir)
    assert opened == sorted([f"compacted-0/{int(lost.stem)}", f"plain-zstd-0/{int(active.stem)}"])
    assert ended.code == 3, "the half segment ends in an incomplete batch"
    assert ended.json["gone"] == 2
    assert {(row["topic"], row["base_offset"]) for row in place.segments("status = 'gone'")} == {
        ("append-time", 0),
        ("txn-mixed", int(oldest.stem)),
    }
    assert [row["topic"] for row in rows(place.catalog, "SELECT * FROM partitions WHERE NOT present")] == [
        "append-time"
    ]

    # The active segment grows back, and a new one follows it: the same bytes as a full build.
    active.write_bytes(whole)
    rolled = active.with_name(f"{20000:020d}.log")
    rolled.touch()
    ended, opened = read_while_building(place, log_dir)
    assert opened == sorted([f"plain-zstd-0/{int(active.stem)}", "plain-zstd-0/20000"])
    assert [row["base_offset"] for row in place.segments("topic = 'plain-zstd' AND active")] == [20000]

    # Another topic of the same name: every segment is read again, though no log has changed.
    metadata = log_dir / "compacted-0" / "partition.metadata"
    metadata.write_text(re.sub("topic_id: .*", "topic_id: AAAAAAAAAAAAAAAAAAAAAA", metadata.read_text()))
    ended, opened = read_while_building(place, log_dir)
    assert {name.split("/")[0] for name in opened} == {"compacted-0"} and len(opened) == 4

    # Trusting checksums reads nothing that was checked; what was trusted is read when checking is asked for.
    os.utime(rolled)
    ended, opened = read_while_building(place, log_dir, "--no-verify-crc")
    assert opened == ["plain-zstd-0/20000"]
    ended, opened = read_while_building(place, log_dir)
    assert opened == ["plain-zstd-0/20000"]
    assert ended.code == 0

    whole_build = place.beside("whole")
    whole_build.build("--source", f"broker={log_dir}")
    still_there = {
        name: content
        for name, content in tree(place.index_dir).items()
        if (log_dir / name).with_suffix(".log").exists()
    }
    assert still_there == tree(whole_build.index_dir)


@by_both
def test_transactions_are_derived_from_the_catalog_without_reading_old_logs(place: Place, log_dir: Path) -> None:
    """The last segment grows while retention takes the first ones: what those held is known, and no log is opened."""
    logs = sorted((log_dir / "txn-mixed-0").glob("*.log"))
    contents = [log.read_bytes() for log in logs]
    logs[-1].write_bytes(contents[-1][: len(contents[-1]) // 3])
    read_while_building(place, log_dir, "--topics", "txn-mixed")
    fewer = len(place.aborted())
    logs[0].unlink()
    logs[1].unlink()
    logs[-1].write_bytes(contents[-1])

    ended, opened = read_while_building(place, log_dir, "--topics", "txn-mixed")

    assert opened == [f"txn-mixed-0/{int(logs[-1].stem)}"]
    assert {row["producer_state"] for row in place.segments()} == {"log-start"}
    [expected] = [segment for segment in golden.committed() if segment.log.name == logs[-1].name and segment.snapshot]
    assert (place.index_dir / "txn-mixed-0" / logs[-1].with_suffix(".txnindex").name).read_bytes() == (
        expected.transaction_index
    )
    assert 0 < fewer - 22 < ended.json["aborted_transactions"] == 12, "the first two segments hold 22 of the 34"

    # A lost transaction index is rewritten without a log being read; the catalog stays as it is.
    version = DeltaTable(place.catalog / "segments").version()
    for path in place.index_dir.rglob("*.txnindex"):
        path.unlink()
    ended, opened = read_while_building(place, log_dir, "--topics", "txn-mixed", "--epochs")
    assert (opened, ended.json["by_transaction_index"]) == ([], {"written": 1, "none": 1})
    assert DeltaTable(place.catalog / "segments").version() == version
    assert (place.index_dir / "txn-mixed-0" / "leader-epoch-checkpoint").exists()


@by_both
def test_a_segment_on_whose_producers_kafka_fails_is_quarantined(place: Place, tmp_path: Path) -> None:
    """Only its partition's order shows it: a transaction began in the segment before. Said once, and then known."""
    transactional = Batch(producer_id=7, producer_epoch=0, attributes=ATTRIBUTE_TRANSACTIONAL)
    directory = tmp_path / "kafka-logs" / "orders-0"
    directory.mkdir(parents=True)
    for base_offset, batches in {0: [transactional], 1: [Batch(), replace(transactional, attributes=0)], 3: []}.items():
        (directory / f"{base_offset:020d}.log").write_bytes(b"".join(encode(base_offset, batches)))

    ended = place.build("--source", f"broker={directory.parent}")

    assert (ended.code, ended.json["by_status"]) == (3, {"ok": 2, "quarantined": 1})
    [named] = ended.json["not_well"]
    assert (named["base_offset"], named["reason_position"]) == (1, 100)
    assert named["reason"] == "non-transactional-in-transaction"
    [row] = place.segments("status = 'quarantined'")
    assert (row["base_offset"], row["offset_index_bytes"]) == (1, None)
    assert sorted(tree(place.index_dir)) == [
        f"orders-0/{base_offset:020d}.{suffix}" for base_offset in (0, 3) for suffix in ("index", "timeindex")
    ]
    ended, opened = read_while_building(place, directory.parent)
    assert (ended.code, opened) == (3, []), "it is known, and still there"
    assert ended.json["not_well_count"] == 0 and ended.json["damage"]["damaged"] == 1


def test_what_compaction_chose_stays_until_someone_says_otherwise(place: Place, log_dir: Path) -> None:
    """A row that compaction wrote keeps its interval in ordinary builds, even when its segment must be read again."""
    place.build("--source", f"broker={log_dir}")
    dense = tree(place.index_dir)
    compacted = {"interval_source": "'compaction'", "interval_bytes": "65536"}
    DeltaTable(place.catalog / "segments").update(compacted, predicate="topic = 'plain-zstd'")
    os.utime(sorted((log_dir / "plain-zstd-0").glob("*.log"))[0])

    _, opened = read_while_building(place, log_dir)
    assert opened == ["plain-zstd-0/0"]
    coarse = tree(place.index_dir)
    assert len(coarse["plain-zstd-0/00000000000000000000.index"]) < len(
        dense["plain-zstd-0/00000000000000000000.index"]
    )

    _, opened = read_while_building(place, log_dir, "--interval-bytes", "4096")
    assert {name.split("/")[0] for name in opened} == {"plain-zstd-0"}
    assert tree(place.index_dir) == dense
    assert {row["interval_source"] for row in place.segments()} == {"settings"}


@by_both
def test_in_place_writes_beside_the_segments_and_keeps_what_a_corrupt_log_has(place: Place, log_dir: Path) -> None:
    """The bytes of an index directory, under the log dir's lock; a truncated segment's files stay until that is
    accepted.
    """
    place.build("--source", f"broker={log_dir}")
    in_index_dir = tree(place.index_dir)
    corrupt = sorted((log_dir / "txn-mixed-0").glob("*.log"))[1]
    corrupt.write_bytes(corrupt.read_bytes()[:-10])
    logs = {name: content for name, content in tree(log_dir).items() if name.endswith(".log")}

    catalog = place.catalog.with_name("catalog-in-place")
    ended = place.run("--source", log_dir, "--in-place", "--catalog", catalog, "--json")
    assert ended.code == 3, ended.err
    assert ended.json["by_published"] == {"written": 11, "kept": 1}
    written = {name: content for name, content in tree(log_dir).items() if name.endswith(("index", "timeindex"))}
    suffixes = (".index", ".timeindex", ".txnindex")
    kept = {str(corrupt.relative_to(log_dir).with_suffix(suffix)) for suffix in suffixes}
    assert written == {name: content for name, content in in_index_dir.items() if name not in kept}
    assert (log_dir / ".lock").exists()

    ended = place.run("--source", log_dir, "--in-place", "--accept-truncated", "--catalog", catalog, "--json")
    assert ended.json["segments"] == 1, "only what was kept back before is read again"
    assert kept <= tree(log_dir).keys()
    assert {name: content for name, content in tree(log_dir).items() if name.endswith(".log")} == logs


def test_partitions_hold_what_the_checkpoint_files_say(place: Place, log_dir: Path) -> None:
    """Offsets from the log dir's checkpoints by partition; null where a file or an entry is not there."""
    (log_dir / "replication-offset-checkpoint").write_text("0\n2\ntxn-mixed 0 10333\ncompacted 0 7\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 84\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 9000\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    ended = place.build("--source", f"broker={log_dir}")
    found = {row["topic"]: row for row in rows(place.catalog, "SELECT * FROM partitions")}
    assert sorted(found) == TOPICS_OF_THE_SAMPLE
    txn_mixed = found["txn-mixed"]
    assert (txn_mixed["first_base_offset"], txn_mixed["log_end_offset"]) == (0, 10333)
    assert (txn_mixed["log_start_offset"], txn_mixed["high_watermark"], txn_mixed["recovery_point"]) == (
        84,
        10333,
        9000,
    )
    assert txn_mixed["cleaner_offset"] is None and txn_mixed["clean_shutdown"] is True
    assert found["compacted"]["high_watermark"] == 7 and found["plain-zstd"]["high_watermark"] is None
    assert txn_mixed["topic_id"] == (log_dir / "txn-mixed-0" / "partition.metadata").read_text().split("topic_id: ")[1]
    assert ended.json["notes"] == []


def test_waves_and_several_sources_give_the_same_rows_as_one_wave_of_each(
    place: Place, log_dir: Path, tmp_path: Path
) -> None:
    """Waves of one segment each; two sources hold the same partitions, with other bounds; only some topics."""
    backup = Path(shutil.copytree(log_dir, tmp_path / "backup"))
    sorted((backup / "txn-mixed-0").glob("*.log"))[0].unlink()
    settings = tmp_path / "settings.toml"
    settings.write_text("[build]\nwave_bytes = 1\n")
    ended = place.build(
        *("--source", f"a={log_dir}", "--source", f"b={backup}", "--settings", settings, "--topics", "txn-.*|compacted")
    )
    assert ended.json["waves"] == ended.json["segments"] == 15
    found = place.segments()
    assert [row["source"] for row in found] == ["a"] * 8 + ["b"] * 7
    assert all(Path(str(row["index_directory"])).is_relative_to(place.index_dir / str(row["source"])) for row in found)

    one_wave = place.beside("one-wave")
    one_wave.build("--source", f"a={log_dir}")
    compared = ("topic", "base_offset", "next_offset", "batches", "offset_index_crc32c", "time_index_crc32c")
    assert [{name: row[name] for name in compared} for row in found if row["source"] == "a"] == [
        {name: row[name] for name in compared} for row in one_wave.segments("topic IN ('txn-mixed', 'compacted')")
    ]


def test_a_moved_source_is_not_read_again_and_another_source_may_not_share_its_index_folder(
    place: Place, log_dir: Path, tmp_path: Path
) -> None:
    """Same name, other path: the rows follow. Same partitions, other name: their files would overwrite each other."""
    place.build("--source", f"broker={log_dir}", "--topics", "compacted")
    moved = log_dir.rename(tmp_path / "moved")
    ended, opened = read_while_building(place, moved, "--topics", "compacted")
    assert (opened, ended.json["unchanged"]) == ([], 4)
    assert {Path(row["log_path"]).parent for row in place.segments()} == {moved / "compacted-0"}

    files = tree(place.index_dir)
    refused = place.run("--source", f"other={moved}", "--index-dir", place.index_dir, "--catalog", place.catalog)
    assert refused.code == 2 and "of source broker" in refused.err.splitlines()[-1]
    assert tree(place.index_dir) == files


def test_a_dry_run_writes_nothing_and_says_what_would_be_read(place: Place, log_dir: Path) -> None:
    """Before any build, and after one, when a segment has changed and there is a rate to estimate by."""
    ended = place.build("--source", f"broker={log_dir}", "--dry-run")
    assert ended.json["to_read"] == 12 and ended.json["estimated_seconds"] is None
    assert not place.index_dir.exists() and not place.catalog.exists()

    place.build("--source", f"broker={log_dir}")
    changed = sorted((log_dir / "compacted-0").glob("*.log"))[0]
    os.utime(changed)
    versions = [DeltaTable(place.catalog / name).version() for name in ("segments", "partitions", "builds")]
    ended = place.build("--source", f"broker={log_dir}", "--dry-run")
    assert (ended.json["to_read"], ended.json["to_read_bytes"]) == (1, changed.stat().st_size)
    assert ended.json["estimated_seconds"] > 0
    assert versions == [DeltaTable(place.catalog / name).version() for name in ("segments", "partitions", "builds")]


def test_the_shell_command_prints_one_json_object_and_passes_its_exit_code_on(tmp_path: Path, log_dir: Path) -> None:
    """Through ./spark-submit.sh: standard output is one object, all else is on standard error, exit code 3.

    Java takes most classes from the archive that setup.sh has made.
    """
    (log_dir / "compacted-0" / "wrong.log").touch()
    (log_dir / "compacted-0" / "00000000000000000007.log").symlink_to("nowhere")
    (log_dir / "orders").mkdir()
    place = Place(tmp_path, build_here)
    arguments = ("--source", log_dir, "--index-dir", place.index_dir, "--catalog", place.catalog)
    loaded = place.index_dir.with_name("classes.log")
    ended = build(*arguments, "--json", "--json-line", "--", "--driver-java-options", f"-Xlog:class+load:file={loaded}")
    assert ended.code == 3, ended.err
    assert ended.json["by_status"] == {"ok": 12, "unreadable": 1}
    classes = loaded.read_text().splitlines()
    assert sum("source: shared objects file (top)" in line for line in classes) > len(classes) / 2
    [dangling] = ended.json["not_well"]
    assert (dangling["base_offset"], dangling["reason_detail"]) == (7, "No such file or directory")
    warnings = [line for line in ended.err.splitlines() if not re.match(r"\d+ (of \d+ )?segments, ", line)]
    assert len(warnings) == 3 and json.loads(warnings[-1])["status"] == "not_well", ended.err
    assert "wrong.log: skipped" in ended.err and "orders: skipped" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "{log_dir}", "--source", "{empty}"], "each needs a name"),
        (["--source", "a={log_dir}", "--source", "a={empty}"], "given 2 times"),
        (["--source", "{log_dir}", "--catalog", "{log_dir}/catalog"], "one is inside the other"),
        (["--source", "{log_dir}", "--settings", "{settings}"], "did you mean interval_bytes?"),
        (["--source", "{log_dir}", "--accept-truncated"], "--in-place"),
        (["--sorce", "{log_dir}"], "--source"),
    ],
)
def test_wrong_inputs_get_one_line_and_nothing_is_done(
    arguments: list[str], message: str, log_dir: Path, tmp_path: Path, run_build: RunHere
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "settings.toml").write_text("[build]\ninterval_byte = 1\n")
    places = {"log_dir": log_dir, "empty": tmp_path / "empty", "settings": tmp_path / "settings.toml"}
    before = tree(tmp_path)
    where = {"--index-dir": tmp_path / "index", "--catalog": tmp_path / "catalog"}
    defaults = [text for option, path in where.items() if option not in arguments for text in (option, str(path))]
    ended = run_build(*[argument.format(**places) for argument in arguments], *defaults)
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert line.startswith("error: ") and message in line
    assert tree(tmp_path) == before
