"""Real segments, changed at random: never a crash, a hang or unbounded memory, and always what Kafka makes of them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment
from tests.conftest import Say
from tests.faults.children import scan_logs
from tests.faults.processes import Child
from tests.kafka.mutations import Mutated, mutated_log
from tests.kafka.same_partition import NOT_COMPARED, assert_as_kafka, fold_partition
from tests.support.kafka.classes import Kafka
from tests.support.logs.golden import GoldenSegment

CASES: Final = 500
CASES_EXHAUSTIVE: Final = 20_000
#: Scanned by one process.
_GROUP: Final = 100
#: By which the memory of such a process may grow; the logs themselves have 200 KiB at most.
_GROWTH_MAX: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Case:
    number: int
    segment: GoldenSegment
    mutated: Mutated
    options: RecoverOptions
    chunk_bytes: int | None

    def kept_in(self, directory: Path) -> str:
        """What this case is, for whoever looks into it; its log is kept in the directory."""
        log = directory / f"case-{self.number}{LOG_SUFFIX}"
        log.write_bytes(self.mutated.log)
        how = "mapped" if self.chunk_bytes is None else f"in chunks of {self.chunk_bytes} bytes"
        base_offset = self.segment.base_offset
        return f"{log}, from {self.segment.name}, base offset {base_offset}, {self.options}, {how}: {self.mutated.done}"


def test_mutated_segments(
    kafka: Kafka,
    scratch: Path,
    tmp_path: Path,
    golden_segments: list[GoldenSegment],
    rng: random.Random,
    say: Say,
    random_cases: Callable[[int, int], int],
) -> None:
    """Mutate sections of real segments, have them scanned in processes of their own, mapped or in chunks, and recovered
    by Kafka; compare everything that Kafka writes, and why it fails. A log that differs is kept.
    """
    cases = random_cases(CASES, CASES_EXHAUSTIVE)
    ends: Counter[str] = Counter()
    growth = 0
    for first in range(0, cases, _GROUP):
        group = [_case(number, rng, golden_segments) for number in range(first, min(first + _GROUP, cases))]
        scanned, group_growth = _scan(scratch / "ours", group, tmp_path)
        growth = max(growth, group_growth)
        for case, recovered in zip(group, scanned, strict=True):
            try:
                ends[_compare(kafka, scratch / "test-0", case, recovered)] += 1
            except AssertionError as error:
                error.add_note(case.kept_in(tmp_path))
                raise
    assert growth <= _GROWTH_MAX, f"memory grew by {growth} bytes"
    compared = sum(count for end, count in ends.items() if end not in NOT_COMPARED)
    say(f"{compared} of {cases} mutated logs compared and as Kafka's; how they ended:")
    say(", ".join(f"{end} {count}" for end, count in ends.most_common()))
    say(f"memory of a process that scans {_GROUP} of them grew by {growth / 2**20:.1f} MiB at most")


def _case(number: int, rng: random.Random, segments: list[GoldenSegment]) -> _Case:
    segment = rng.choice(segments)
    return _Case(
        number,
        segment,
        mutated_log(rng, segment.log, [other.log for other in segments]),
        RecoverOptions(
            interval_bytes=rng.choice((4096, 512, 0)), max_index_bytes=rng.choice((10 * 2**20, 10 * 2**20, 240))
        ),
        rng.choice((None, None, 61, 97, 4096)),
    )


def _scan(directory: Path, cases: list[_Case], kept: Path) -> tuple[list[RecoveredSegment], int]:
    """The cases' logs scanned by one process, and by how much its memory grew. One that it dies of is kept."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    logs = []
    for case in cases:
        log = directory / f"{case.number}{LOG_SUFFIX}"
        log.write_bytes(case.mutated.log)
        logs.append((log, case.segment.base_offset, case.options, case.chunk_bytes))
    with Child(scan_logs, logs) as child:
        messages, code = child.end()
    assert code == 0, f"exit code {code} at {cases[len(messages)].kept_in(kept)}"
    *scanned, growth = messages
    return scanned, growth


def _compare(kafka: Kafka, directory: Path, case: _Case, recovered: RecoveredSegment) -> str:
    """Assert that Kafka makes the same of it; how it ended."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / segment_file(case.segment.base_offset, LOG_SUFFIX)).write_bytes(case.mutated.log)
    ours = fold_partition([(case.segment.base_offset, len(case.mutated.log), recovered)])
    end = ours.segments[0].end.reason or "ok"
    kafkas = kafka.recover(directory, case.options.interval_bytes, case.options.max_index_bytes)
    assert_as_kafka(ours, kafkas)
    return end
