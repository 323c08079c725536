"""Who wrote a record, and what became of its transaction, beside what consumers of both isolations get."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kidxlib.commands.who import who
from kidxlib.errors import UsageError
from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.reading.who_wrote import TransactionOutcome, who_wrote
from kidxlib.records.reader import Record
from tests.support.logs import encoded
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import run_here

PARTITION = "txn-mixed-0"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLES, tmp_path / "logs")
    return tmp_path / "logs"


def _append(log_dir: Path, offset: int, **fields: Any) -> None:
    with max((log_dir / PARTITION).glob("*.log")).open("ab") as log:
        log.write(encoded.batch_v2([Record(offset, 1, b"k", b"v")], **fields))


def test_outcomes_are_those_that_consumers_see(rng: random.Random) -> None:
    """A record that is committed is read by both isolations, one that was aborted by one, and a marker by none."""
    there, committed = (
        {int(each) for each in read(SAMPLES / PARTITION, isolation=isolation).read_all()["offset"].to_numpy()}
        for isolation in ("read_uncommitted", "read_committed")
    )
    seen = set[TransactionOutcome]()
    for offset in [*rng.sample(range(10_333), 15), *rng.sample(sorted(there - committed), 5), 10_332]:
        found = who_wrote(SAMPLES, PARTITION, offset)
        seen.add(found.outcome)
        assert (found.outcome is TransactionOutcome.MARKER) == (offset not in there) == (found.record is None)
        assert (found.outcome is TransactionOutcome.COMMITTED) == (offset in committed)
        assert (found.transactional_id is None, found.notes) == (False, ())
        assert found.record is None or found.record["offset"] == offset
    assert seen == {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED, TransactionOutcome.MARKER}


def test_a_transaction_without_its_end(log_dir: Path) -> None:
    """It is open; behind damage or a hole nobody knows. Ids that no `__transaction_state` has, and no transaction."""
    _append(log_dir, 10_333, attributes=ATTRIBUTE_TRANSACTIONAL, producer_id=77, producer_epoch=3)
    _append(log_dir, 10_334, producer_id=78)
    found = who_wrote(log_dir, PARTITION, 10_333)
    assert (found.outcome, found.producer_id, found.batch["producer_epoch"]) == (TransactionOutcome.OPEN, 77, 3)
    [note] = found.notes
    assert "no partition of it that is here names the producer; the right one may be on another broker" in note
    assert who_wrote(log_dir, PARTITION, 10_334).outcome is TransactionOutcome.NONE
    [note] = who_wrote(shutil.copytree(log_dir / PARTITION, log_dir.with_name("alone") / PARTITION), PARTITION, 0).notes
    assert note == "__transaction_state: not in the log dirs that were given"
    (log_dir / PARTITION / segment_file(84, LOG_SUFFIX)).unlink()
    found = who_wrote(log_dir, PARTITION, 83)
    assert (
        found.outcome is TransactionOutcome.UNKNOWN and "offsets 84 to 5796 are in no log; a marker" in found.notes[0]
    )
    log = log_dir / PARTITION / segment_file(0, LOG_SUFFIX)
    log.write_bytes(log.read_bytes()[:175] + b"\1" * 200)
    found = who_wrote(log_dir, PARTITION, 0)
    assert (
        found.outcome is TransactionOutcome.UNKNOWN and "a marker of the producer may have been there" in found.notes[0]
    )


@pytest.mark.parametrize(
    ("partition", "offset", "said"),
    [
        ("txn-mixed", 0, "'txn-mixed': expected the name of a partition's directory"),
        ("txn-mixd-0", 0, "no partition txn-mixd-0 in it; it has txn-mixed-0"),
        (PARTITION, 10_333, "offsets beyond the log end: txn-mixed-0 10333 .the log ends at 10333."),
        ("compacted-0", 3, "no batch holds offset 3: compaction has removed it, or a segment is missing"),
    ],
)
def test_what_is_not_there(partition: str, offset: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        who_wrote(SAMPLES, partition, offset)


def test_the_command_shows_it_shortly(log_dir: Path) -> None:
    _append(log_dir, 10_333, attributes=ATTRIBUTE_TRANSACTIONAL, producer_id=77, producer_epoch=3)
    ended = run_here(who, PARTITION, "10333", log_dir)
    assert ended.code == 3 and "  producer         77 of epoch 3" in ended.out
    assert "  transaction      open: no marker of the producer follows" in ended.out
    ended = run_here(who, PARTITION, "0", log_dir, "--json")
    assert (ended.code, ended.json["outcome"], ended.json["record"]["key"]) == (0, "committed", "k285")
