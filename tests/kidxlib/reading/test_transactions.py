"""What was committed is read, and nothing else, whatever transactions do over ends of segments and high watermarks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError
from kidxlib.format.segment_files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.records.reader import Record
from tests.conftest import one_in
from tests.support.logs import encoded
from tests.support.logs.transactions import Written, random_transactions


def _offsets(path: Path, **options: Any) -> list[int]:
    found: list[Any] = (
        read(path, isolation="read_committed", columns=["offset"], **options).read_all()["offset"].to_pylist()
    )
    return found


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 40))
@one_in(2)
def test_what_was_committed_is_read(seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    written = random_transactions(rng, steps)
    log_dir = tmp_path_factory.mktemp("log-dir")
    written.write(log_dir / "topic-0", {number for number in range(steps) if rng.random() < 0.2})
    end = written.next_offset
    assert _offsets(log_dir, threads=rng.choice([1, 2])) == written.committed(end)
    high_watermark = rng.randint(0, end)
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\ntopic 0 {high_watermark}\n")
    committed = written.committed(high_watermark)
    assert _offsets(log_dir) == committed
    start, until = sorted((rng.randint(0, end), rng.randint(0, end)))
    assert _offsets(log_dir, offsets=(start, None)) == [offset for offset in committed if offset >= start]
    assert _offsets(log_dir, offsets=(start, until)) == [offset for offset in committed if start <= offset < until]
    assert _offsets(log_dir, to_log_end=True) == written.committed(end)
    uncommitted = read(log_dir, columns=["offset"], to_log_end=True).read_all()["offset"].to_pylist()
    assert uncommitted == sorted(written.fates)


def test_transaction_indexes_are_not_believed(tmp_path: Path) -> None:
    """One that is missing, or another's, changes nothing."""
    written = Written()
    written.data(1, 2)
    written.marker(1, aborts=True)
    written.data(2, 2)
    written.write(tmp_path / "topic-0", set())
    index = tmp_path / "topic-0" / segment_file(0, TRANSACTION_INDEX_SUFFIX)
    for content in (None, b"", bytes(34), b"\0\0" + bytes(7) + b"\2" + (3).to_bytes(8) + (5).to_bytes(8) + bytes(8)):
        if content is not None:
            index.write_bytes(content)
        assert _offsets(tmp_path) == []


def test_a_lost_marker_is_told(tmp_path: Path) -> None:
    """Or what it may have decided on is left out, and no more."""
    written = Written()
    written.data(1, 2)  # 0, 1: its marker is lost
    written.data(2, 2)  # 2, 3: open where that is lost, and committed, perhaps
    written.marker(1, aborts=False)
    written.data(None, 1)  # 5
    written.marker(2, aborts=False)
    written.data(1, 1)  # 7: the producer's next transaction, or so it seems
    written.marker(1, aborts=False)
    written.data(2, 1)  # 9
    written.marker(2, aborts=False)
    written.data(3, 1)  # 11: open in the end
    written.data(None, 1)
    assert written.committed(written.next_offset) == [0, 1, 2, 3, 5, 7, 9]
    offset, marker = written.batches[2]
    written.batches[2] = offset, marker[:-1] + b"\xff"
    directory = tmp_path / "topic-0"
    written.write(directory, {5})
    log = directory / segment_file(0, LOG_SUFFIX)
    at = sum(len(data) for _, data in written.batches[:2])
    with pytest.raises(DamagedLogError, match=f"{log}: byte {at}: crc-mismatch: .* cannot be told"):
        _offsets(tmp_path)
    assert _offsets(tmp_path, on_damage="skip") == [5, 9]


def test_logs_count_as_far_as_it_takes_to_see_how_transactions_end(tmp_path: Path) -> None:
    """Damage after that is not met. Before what is asked for, all do: a transaction may begin there that never ends."""
    written = Written()
    written.data(1, 1)  # 0
    written.data(None, 1)  # 1: the next segment
    written.marker(1, aborts=True)  # 2: the next one
    written.data(2, 1)  # 3: the next one, which is damaged
    offset, batch = written.batches[3]
    written.batches[3] = offset, batch[:-1] + b"x"
    written.write(tmp_path / "topic-0", {1, 2, 3})
    assert _offsets(tmp_path, offsets=(0, 1)) == []
    assert _offsets(tmp_path, offsets=(0, 3)) == [1]
    with pytest.raises(DamagedLogError, match=r"byte 0: crc-mismatch: .* cannot be told"):
        _offsets(tmp_path, offsets=(0, 4))
    (tmp_path / "topic-0" / segment_file(2, LOG_SUFFIX)).unlink()
    with pytest.raises(DamagedLogError, match=r"byte 0: crc-mismatch: .* cannot be told"):
        _offsets(tmp_path, offsets=(1, 2))


def test_a_transaction_whose_marker_is_lost_for_good_hides_nothing_else(tmp_path: Path) -> None:
    written = Written()
    written.data(1, 2)
    written.marker(1, aborts=False)
    written.data(None, 1)
    offset, marker = written.batches[1]
    written.batches[1] = offset, marker[:-1] + b"\xff"
    written.write(tmp_path / "topic-0", set())
    assert _offsets(tmp_path, on_damage="skip") == [3]


def test_what_no_broker_lets_a_producer_do_is_told(tmp_path: Path) -> None:
    written = Written()
    written.data(1, 1)
    records = [Record(1, 0, None, b"")]
    written.batches.append((1, encoded.batch_v2(records, producer_id=1, producer_epoch=0, base_sequence=0)))
    written.write(tmp_path / "topic-0", set())
    with pytest.raises(DamagedLogError, match="producer 1 writes outside of its open transaction at offset 1"):
        _offsets(tmp_path)
