"""Checksums of copies in an S3 store: those that the server computes are ours, and `kidx verify --copy` compares."""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.cli.main import kidx as kidx_command
from kidxlib.operations.compare.copy_in_store import CopyVerdict
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.record_facts import with_all_facts
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog
from kidxlib.storage.store.requests import Requests
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import kidx, refused_kidx
from tests.support.checksum_store import PART_BYTES, ChecksumStore
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.segments import Segment, segments
from tests.support.object_store import BUCKET, Fault
from tests.support.spark.jobs import Ended, run_here

_KEY = "checksums/of.log"


def test_golden(checksum_store: ChecksumStore, golden_segment: GoldenSegment) -> None:
    _check(checksum_store, golden_segment.log.read_bytes(), golden_segment.base_offset, golden_segment.options)


def test_generated_segments(checksum_store: ChecksumStore, exhaustive: bool, say: Say) -> None:
    logs = 0

    # The server has files to write for each.
    @settings(max_examples=10_000 if exhaustive else 100, suppress_health_check=list(HealthCheck))
    @given(segments())
    def check(segment: Segment) -> None:
        nonlocal logs
        _check(checksum_store, segment.log, segment.base_offset, segment.options)
        logs += 1

    check()
    say(f"{logs} logs")


@pytest.mark.parametrize(("algorithm", "checksum_bytes"), [("CRC32C", 4), ("CRC64NVME", 8)])
def test_a_log_that_is_uploaded_in_parts(checksum_store: ChecksumStore, algorithm: str, checksum_bytes: int) -> None:
    """The server combines the checksums of the parts, as we those of the batches."""
    log = b"".join(encode(0, [Batch(body=FILLER * 8) for _ in range(PART_BYTES // 30_000)]))
    assert 2 * PART_BYTES < len(log) < 3 * PART_BYTES
    checksum_store.put_in_parts(_KEY, log, algorithm, "FULL_OBJECT")
    found = _checksum(checksum_store, algorithm, checksum_bytes)
    whole = WholeLog(np.frombuffer(log, np.uint8))
    facts = with_all_facts(whole, recover(whole, 0, RecoverOptions()).facts)
    assert found == {"CRC32C": facts.log_crc32c, "CRC64NVME": facts.log_crc64nvme}[algorithm]


def _check(store: ChecksumStore, log: bytes, base_offset: int, options: RecoverOptions) -> None:
    store.put_with(_KEY, log, "CRC32C")
    crc32c = _checksum(store, "CRC32C", 4)
    store.put_with(_KEY, log, "CRC64NVME")
    crc64nvme = _checksum(store, "CRC64NVME", 8)
    whole = WholeLog(np.frombuffer(log, np.uint8))
    scanned = recover(whole, base_offset, options).facts
    assert scanned.log_crc32c in (None, crc32c)  # from the checksums of its batches, where all have one
    facts = with_all_facts(whole, scanned)
    assert (facts.log_crc32c, facts.log_crc64nvme) == (crc32c, crc64nvme)


def _checksum(store: ChecksumStore, algorithm: str, checksum_bytes: int) -> int:
    """The object's, as the catalog has it: of 64 bits a signed number."""
    head = store.head(_KEY)
    assert head["ChecksumType"] == "FULL_OBJECT"
    data = base64.b64decode(head[f"Checksum{algorithm}"], validate=True)
    assert len(data) == checksum_bytes
    return int.from_bytes(data, signed=checksum_bytes == 8)


_LARGE: Final = "large-0/00000000000000000000.log"
_PREFIX: Final = "copies/kafka-logs"
_URL: Final = f"s3://{BUCKET}/{_PREFIX}"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The partitions of the sample and of tests/data, sound and damaged, and a log of more than one part."""
    made = tmp_path_factory.mktemp("copies") / "logs"
    for source in (golden.SAMPLES, golden.DATA / "logs"):
        shutil.copytree(source, made, dirs_exist_ok=True)
    (made / "large-0").mkdir()
    (made / _LARGE).write_bytes(b"".join(encode(0, [Batch(body=FILLER * 8) for _ in range(PART_BYTES // 40_000)])))
    return made


@pytest.fixture(scope="module")
def scanned(log_dir: Path) -> Path:
    """The catalog of a build as it is by default: without CRC-64/NVME."""
    return _catalog(log_dir)


@pytest.fixture(scope="module")
def filled(log_dir: Path) -> Path:
    """A catalog with both checksums of all logs."""
    return _catalog(log_dir, "--fill-facts", "1GB")


def _catalog(log_dir: Path, *options: str) -> Path:
    catalog = log_dir.parent / f"catalog-{len(options)}"
    places = ("--source", f"archive={log_dir}", "--index-dir", log_dir.parent / "index", "--catalog", catalog)
    for _ in range(1 + len(options) // 2):  # an option that fills reads what a build without it has found
        built = run_here(kidx_command, "build", *places, *options)
        assert built.code == ExitCode.PROBLEMS_FOUND, built  # of damaged logs
    return catalog


@pytest.fixture
def copy(checksum_store: ChecksumStore) -> Iterator[ChecksumStore]:
    """The store, in which the copy is taken away afterwards."""
    yield checksum_store
    checksum_store.before = None
    for name in list(checksum_store.contents(_PREFIX)):
        checksum_store.delete(f"{_PREFIX}/{name}")


def _put_all(copy: ChecksumStore, log_dir: Path, algorithm: str = "CRC64NVME") -> dict[str, bytes]:
    logs = tree(log_dir, "*.log")
    for name, log in logs.items():
        copy.put_with(f"{_PREFIX}/{name}", log, algorithm)
    copy.requests.clear()
    return logs


def _compare(catalog: Path, *options: str) -> Ended:
    return run_here(kidx_command, "verify", "--copy", _URL, "--catalog", catalog, *options)


def _counts(ended: Ended) -> dict[str, int]:
    return {verdict: count for verdict, count in ended.json["segments"].items() if count}


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_what_was_uploaded_whole_is_as_uploaded(
    copy: ChecksumStore, log_dir: Path, filled: Path, algorithm: str
) -> None:
    """Every log of the fixtures, damaged ones too, by one HEAD each: the server's own checksum is the catalog's."""
    logs = _put_all(copy, log_dir, algorithm)
    ended = _compare(filled, "--json", "--require-checksums", "--processes", "2")
    assert ended.code == ExitCode.OK, ended
    assert _counts(ended) == {CopyVerdict.AS_UPLOADED: len(logs)}
    assert ended.json["problems"] == ended.json["not_comparable"] == []
    assert Counter(request.key for request in copy.counted("HEAD")) == {f"{_PREFIX}/{name}": 1 for name in logs}
    assert ended.json["requests"] == copy.made().as_json() == Requests(list=1, head=len(logs)).as_json()


def test_what_the_catalog_does_not_know_is_not_compared(copy: ChecksumStore, log_dir: Path, scanned: Path) -> None:
    """A build knows CRC-32C of logs whose batches all have one, and no CRC-64/NVME."""
    known = DeltaTables(str(scanned)).read(SEGMENTS, ["log_crc32c"])["log_crc32c"]
    logs = _put_all(copy, log_dir, "CRC32C")
    ended = _compare(scanned, "--json")
    assert ended.code == ExitCode.OK, ended
    assert 0 < known.null_count < len(logs)
    assert _counts(ended) == {"as-uploaded": len(logs) - known.null_count, "no-fact": known.null_count}
    assert all("--fill-facts" in each["detail"] for each in ended.json["not_comparable"])
    assert _compare(scanned, "--json", "--require-checksums").code == ExitCode.PROBLEMS_FOUND
    _put_all(copy, log_dir, "CRC64NVME")
    ended = _compare(scanned)
    assert ended.code == ExitCode.OK and f"{len(logs)} of {len(logs)} segments cannot be compared" in ended.err, ended
    assert "as-uploaded │        0" in ended.out


def test_each_copy_gets_its_own_verdict(copy: ChecksumStore, log_dir: Path, filled: Path) -> None:
    """Cut, flipped, missing and refused ones are problems; others cannot be compared, and count for nothing good."""
    logs = _put_all(copy, log_dir)
    cut, flipped, missing, refused, without, sha256 = (
        "compacted-0/00000000000000000000.log",
        "compacted-0/00000000000000016431.log",
        "plain-zstd-0/00000000000000000000.log",
        "plain-zstd-0/00000000000000013697.log",
        "txn-mixed-0/00000000000000000000.log",
        "txn-mixed-0/00000000000000000084.log",
    )
    of_copy = {name: f"{_PREFIX}/{name}" for name in logs}
    copy.put_with(of_copy[cut], logs[cut][:-1], "CRC32C")
    of_flipped = bytearray(logs[flipped])
    of_flipped[len(of_flipped) // 2] ^= 1
    copy.put_with(of_copy[flipped], bytes(of_flipped), "CRC32C")
    copy.delete(of_copy[missing])
    copy.before = lambda _, key: 403 if key == of_copy[refused] else None
    copy.delete(of_copy[without])
    copy.put_without(of_copy[without], logs[without])
    copy.put_with(of_copy[sha256], logs[sha256], "SHA256")
    copy.put_in_parts(of_copy[_LARGE], logs[_LARGE], "CRC32C", "COMPOSITE")
    ended = _compare(filled, "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    found = {each["object"].removeprefix(f"{_URL}/"): each for each in _one_by_one(ended)}
    assert {name: each["verdict"] for name, each in found.items()} == {
        cut: CopyVerdict.OTHER_SIZE,
        flipped: CopyVerdict.DIFFERS,
        missing: CopyVerdict.MISSING,
        refused: CopyVerdict.REFUSED,
        without: CopyVerdict.NO_CHECKSUM,
        sha256: CopyVerdict.NO_CHECKSUM,
        _LARGE: CopyVerdict.COMPOSITE,
    }
    assert f"{len(logs[cut]):,} bytes, the object {len(logs[cut]) - 1:,}" in found[cut]["detail"]
    assert "CRC-32C of the log is " in found[flipped]["detail"] and "SHA-256" in found[sha256]["detail"]
    assert (found[flipped]["topic"], found[flipped]["partition"], found[flipped]["base_offset"]) == (
        ("compacted", 0, 16431)
    )
    counts = Counter(each["verdict"] for each in found.values())
    assert _counts(ended) == {"as-uploaded": len(logs) - len(found), **counts}
    on_screen = _compare(filled)
    assert on_screen.code == ExitCode.PROBLEMS_FOUND
    assert all(f"{each['verdict']}: {each['object']}: {each['detail']}" in on_screen.out for each in found.values())


def test_compare_reads_a_copy_in_a_store_or_asks_for_its_checksums(
    copy: ChecksumStore, log_dir: Path, scanned: Path, filled: Path
) -> None:
    """What no checksum tells is a fault here; the old spelling says which one takes its place."""
    logs = _put_all(copy, log_dir, "CRC64NVME")
    by_catalog = run_here(kidx_command, "compare", "archive", _URL, "--catalog", filled, "--json")
    assert by_catalog.code == ExitCode.OK and _counts(by_catalog) == {CopyVerdict.AS_UPLOADED: len(logs)}
    assert run_here(kidx_command, "compare", "archive", _URL, "--catalog", scanned).code == ExitCode.PROBLEMS_FOUND
    assert "is now kidx compare SOURCE URL --catalog DIR" in _compare(filled).err
    wanted = ("compare", log_dir, _URL, "--topics", "txn-mixed|plain-zstd", "--json")
    read = run_here(kidx_command, *wanted, "--logs-only")
    assert read.code == ExitCode.OK, read
    assert {each["kind"] for each in read.json["findings"]} == {"file-missing"} and read.json["logs"] == 6
    copy.delete(f"{_PREFIX}/txn-mixed-0/{84:020}.log")
    for how, kinds in (("copy", {"file-missing", "lacks"}), ("replica", {"lacks"})):
        ended = run_here(kidx_command, *wanted, "--as", how)
        assert ended.code == ExitCode.PROBLEMS_FOUND
        assert {each["kind"] for each in ended.json["findings"]} == kinds, ended


def _one_by_one(ended: Ended) -> list[dict[str, Any]]:
    problems, others = ended.json["problems"], ended.json["not_comparable"]
    assert {each["verdict"] for each in problems} <= {"differs", "other-size", "missing", "refused"}
    return [*problems, *others]


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_parts_whose_checksums_the_server_combines_are_compared(
    copy: ChecksumStore, log_dir: Path, filled: Path, algorithm: str
) -> None:
    log = (log_dir / _LARGE).read_bytes()
    copy.put_in_parts(f"{_PREFIX}/{_LARGE}", log, algorithm, "FULL_OBJECT")
    ended = _compare(filled, "--topics", "large", "--json")
    assert ended.code == ExitCode.OK and _counts(ended) == {"as-uploaded": 1}, ended
    copy.put_in_parts(f"{_PREFIX}/{_LARGE}", log[:-1] + b"?", algorithm, "FULL_OBJECT")
    ended = _compare(filled, "--topics", "large", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND and _counts(ended) == {"differs": 1}, ended


def test_the_last_segments_may_be_left_out(copy: ChecksumStore, log_dir: Path, filled: Path) -> None:
    """A broker may have written to them since."""
    logs = _put_all(copy, log_dir)
    active = [max(directory.glob("*.log")).relative_to(log_dir) for directory in log_dir.iterdir()]
    for name in active:
        copy.delete(f"{_PREFIX}/{name}")
    ended = _compare(filled, "--json", "--inactive-only")
    assert ended.code == ExitCode.OK and _counts(ended) == {"as-uploaded": len(logs) - len(active)}, ended
    assert _counts(_compare(filled, "--json"))["missing"] == len(active)


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.RESET, 500])
def test_faults_of_every_third_request_change_nothing(
    copy: ChecksumStore, log_dir: Path, filled: Path, fault: Fault | int
) -> None:
    logs = _put_all(copy, log_dir)
    copy.disturb(3, fault, method="HEAD")
    ended = _compare(filled, "--json")
    assert ended.code == ExitCode.OK and _counts(ended) == {"as-uploaded": len(logs)}, ended
    tries = len(copy.counted("HEAD"))
    assert ended.json["requests"] == Requests(list=1, head=tries, tried_again=tries - len(logs)).as_json()
    assert tries > len(logs) + len(logs) // 3


def test_what_cannot_be_asked_is_one_line(
    copy: ChecksumStore, log_dir: Path, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_all(copy, log_dir)

    def refused(*arguments: str | Path, parts: tuple[object, ...], former: str = "verify --copy") -> None:
        refused_kidx("verify", *arguments).assert_one_line(ExitCode.USAGE, *parts, former=former)

    named, catalog = ("--copy", _URL), ("--catalog", filled)
    refused(*named, parts=("--copy", "--catalog DIR"))
    refused("--copy", str(log_dir), *catalog, parts=("--copy", str(log_dir), "s3://BUCKET/PREFIX"))
    refused("--copy", "s3://", *catalog, parts=("s3://BUCKET/PREFIX",))
    # A command of its own, which knows the store: the processes that others are forked from may not.
    for url, why in (
        (f"{_URL}-other", "no object with this prefix"),
        ("s3://no-such-bucket/x", "bucket does not exist"),
    ):
        kidx("verify", "--copy", url, *catalog).assert_one_line(ExitCode.USAGE, url, why, former="verify --copy")
    refused(*named, *catalog, "--source", "other", parts=("--source other", "archive"))
    refused(*named, *catalog, "--source", "archive", "--source", "b", parts=("--source", "one source"))
    refused(*named, *catalog, "--topics", "none", parts=("no segment of a topic that matches none",))
    refused(*named, *catalog, "--deep-iteration", parts=("No such option", "--deep-iteration"))
    refused(log_dir, "--require-checksums", parts=("No such option", "--require-checksums"), former="")
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_SECRET_ACCESS_KEY", "another")
        ended = kidx("verify", *named, *catalog)
        ended.assert_one_line(ExitCode.USAGE, _URL, "403", "signature", former="verify --copy")
        assert "another" not in ended.err
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    kidx("verify", *named, *catalog).assert_one_line(
        ExitCode.USAGE, _URL, "asked 3 times", "AWS_ENDPOINT_URL", former="verify --copy"
    )


def test_a_copy_is_of_one_source(copy: ChecksumStore, log_dir: Path, tmp_path: Path) -> None:
    """Of a catalog that has several the one that was copied is to be named."""
    shutil.copytree(golden.SAMPLES, tmp_path / "logs")
    catalog, sources = tmp_path / "catalog", {"a": log_dir, "b": tmp_path / "logs"}
    places = [word for name, path in sources.items() for word in ("--source", f"{name}={path}")]
    places += ["--index-dir", str(tmp_path / "index"), "--catalog", str(catalog)]
    assert run_here(kidx_command, "build", *places, "--topics", "plain-.*").code == ExitCode.OK
    name = "plain-zstd-0/00000000000000000000.log"
    copy.put_with(f"{_PREFIX}/{name}", (log_dir / name).read_bytes(), "CRC32C")
    ended = _compare(catalog)
    assert ended.code == ExitCode.USAGE and "no --source" in ended.err and "a, b" in ended.err, ended
    ended = _compare(catalog, "--source", "b", "--json")
    assert (ended.json["source"], _counts(ended)) == ("b", {"as-uploaded": 1, "missing": 1})
