"""Mutants: one wrong change each to the code that decides, and the tests that are to notice it.

    .venv/bin/python -m tests.mutants              all of them
    .venv/bin/python -m tests.mutants retention    those of one part

They are made in a clone of this repository: what is not committed has none. It ends with 1 where one is alive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kidxlib.terminal.console import note
from kidxlib.terminal.outcome import print_table
from tests.docs.pages import PROJECT

_SECONDS_MAX: Final = 300
#: How pytest ends that has run no test.
_NOT_RUN: Final = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    Attributes:
        was: stands in the module exactly once.
    """

    name: str
    was: str
    becomes: str


@dataclass(frozen=True, slots=True)
class Part:
    module: str
    tests: Sequence[str]
    mutants: Sequence[Mutant]


PARTS: Final = {
    "scan": Part(
        "kidxlib/recovery/scan/ordinary_kernel.py",
        ("tests/kidxlib/recovery/test_recover.py", "tests/kidxlib/recovery/test_record_facts.py"),
        [
            Mutant("control batches pass", "(attributes & ATTRIBUTE_CONTROL) != 0 or (leader_epoch", "(leader_epoch"),
            Mutant("another epoch passes", " or (leader_epoch >= 0 and leader_epoch != epoch)", ""),
            Mutant("offsets may go back", "            or last_offset < next_offset\n", ""),
            Mutant("relative offsets below 0", "            or relative_offset < 0\n", ""),
            Mutant("another range of digests", "            or offset >> facts.range_shift != facts.range\n", ""),
            Mutant("any checksum is right", "checksum(address, at, batch_bytes, magic) != stored", "False and stored"),
            Mutant(
                "an entry too early", "last_index_position > interval_bytes:", "last_index_position >= interval_bytes:"
            ),
            Mutant("a batch beyond the chunk", " or batch_bytes > len(chunk) - at", ""),
            Mutant(
                "the smallest batch of any magic",
                "BATCH_V2_BYTES_MIN if magic == MAGIC_V2 else BATCH_BYTES_MIN",
                "BATCH_BYTES_MIN",
            ),
            Mutant("transactional batches uncounted", "            transactional += kind_here\n", ""),
        ],
    ),
    "fold": Part(
        "kidxlib/recovery/partition_fold.py",
        ("tests/kidxlib/library", "tests/kidxlib/indexing", "tests/kafka/test_partitions.py"),
        [
            Mutant("a gap is not seen", "if base_offset != self._expected_offset:", "if False:"),
            Mutant(
                "state after damage is trusted",
                "if failure is not None or not segment.problem_free:",
                "if failure is not None:",
            ),
            Mutant(
                "events behind a failure count", 'events = events[events["position"] < epoch_failure.position]', "pass"
            ),
            Mutant("a snapshot is never loaded", "        self.end_source = StateSource.SNAPSHOT\n", "        pass\n"),
            Mutant(
                "old epochs again",
                "            if not self.leader_epochs.is_new_epoch(epoch):\n                continue\n",
                "",
            ),
            Mutant("a failure of epochs is not told", "applied.failure or epoch_failure", "applied.failure"),
        ],
    ),
    "lookup": Part(
        "kidxlib/index/search_kernel.py",
        ("tests/kidxlib/index",),
        [
            Mutant("the slot after it", "        return low, probes\n", "        return low + 1, probes\n"),
            Mutant(
                "above takes this one",
                "            high = middle - 1\n        elif value < target:",
                "            high = middle\n        elif value < target:",
            ),
            Mutant(
                "warm begins elsewhere",
                "entries - 1 - WARM_BYTES // entry_bytes",
                "entries - WARM_BYTES // entry_bytes",
            ),
            Mutant(
                "warm where equal",
                "    if value < target:\n        return _binary",
                "    if value <= target:\n        return _binary",
            ),
            Mutant("no slot above the last", "np.int64(-1) if low == entries - 1 else low + 1", "low + 1"),
        ],
    ),
    "bulk lookup": Part(
        "kidxlib/index/search_kernel.py",
        ("tests/kidxlib/index",),
        [
            Mutant("tables end too early", "    table[parts] = len(values)\n", "    table[parts] = len(values) - 1\n"),
            Mutant("merged below", "values[np.uintp(low + 1)] <= targets", "values[np.uintp(low + 1)] < targets"),
            Mutant("lots start too late", "start = lows[count - 1]\n", "start = lows[count - 1] + 1\n"),
            Mutant("unsorted entries, too", "    elif not increasing:\n", "    elif False:\n"),
            Mutant(
                "bounds of equals",
                "(value == target and low > 0):\n        return low\n    return low + 1 if low + 1 < entries",
                "value == target:\n        return low\n    return low + 1 if low + 1 < entries",
            ),
        ],
    ),
    "retention": Part(
        "kidxlib/retention/decide.py",
        ("tests/kidxlib/retention",),
        [
            Mutant("as old as the limit", "(ages > retention_ms)", "(ages >= retention_ms)"),
            Mutant("as large as the limit", "(sizes.cumsum() <= too_many)", "(sizes.cumsum() < too_many)"),
            Mutant(
                "above the high watermark",
                "may_go = segments.fully_read & ~above_high_watermark",
                "may_go = segments.fully_read",
            ),
            Mutant("damaged segments go", "may_go = segments.fully_read & ~above", "may_go = ~above"),
            Mutant("an empty active segment goes", "        may_go[-1] &= segments.sizes[-1] > 0\n", ""),
            Mutant("the last one below the start", "        below_start[-1] = False\n", ""),
            Mutant("no limit is zero", " & (retention_ms >= 0)\n", "\n"),
            Mutant(
                "compacted topics, too",
                "    if Cleanup.DELETE in policy.cleanup:\n        by_size",
                "    if True:\n        by_size",
            ),
        ],
    ),
    "pushed filters": Part(
        "kidxlib/spark/pushed_filters.py",
        ("tests/kidxlib/spark/test_pushed_filters.py",),
        [
            Mutant("as large is not enough", "bool(value >= constant)", "bool(value > constant)"),
            Mutant("the offset itself, too", "(last + 1, None)", "(last, None)"),
            Mutant("the offset itself is left out", "(first, None)", "(first + 1, None)"),
            Mutant("an offset too few", "(None, first - 1)", "(None, first - 2)"),
            Mutant("microseconds are left out", "return since // _MS, -(-since // _MS)", "return (since // _MS,) * 2"),
            Mutant("no gaps between some offsets", "largest - least + 1 == len(numbers)", "True"),
        ],
    ),
    "publish": Part(
        "kidxlib/storage/publisher.py",
        ("tests/kidxlib/storage/test_publisher.py",),
        [
            Mutant("nothing is read back", "                self._check(staged)\n", "                pass\n"),
            Mutant("same bytes are written again", "read_at(descriptor, name, len(content) + 1) == content", "False"),
            Mutant(
                "staged files stay",
                "                os.unlink(staged.staging_name, dir_fd=self._open(staged.directory))\n",
                "                pass\n",
            ),
            Mutant(
                "renamed before all are checked",
                "                self._check(staged)\n            for staged in self._staged:\n",
                "                self._check(staged)\n",
            ),
        ],
    ),
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PARTS)))
def mutants(names: Sequence[str]) -> None:
    """Make mutants of these parts, or of all, and run the tests that are to kill them."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        subprocess.run(("git", "clone", "--quiet", PROJECT, place), check=True)
        (Path(place) / ".jars").symlink_to(PROJECT / ".jars")
        for name in names or PARTS:
            alive = 0
            for mutant in PARTS[name].mutants:
                killed = _killed(Path(place), PARTS[name], mutant)
                note(f"{name}: {mutant.name}: {'killed' if killed else 'ALIVE'}")
                alive += not killed
            rows.append((name, PARTS[name].module, len(PARTS[name].mutants), alive))
    print_table("mutants", ("part", "module", "made", "alive"), rows, text_columns=2)
    sys.exit(any(alive for *_, alive in rows))


def _killed(clone: Path, part: Part, mutant: Mutant) -> bool:
    """Whether a test fails on it, does not end, or takes the process down."""
    module = clone / part.module
    text = module.read_text()
    assert text.count(mutant.was) == 1, f"{part.module}: {mutant.was!r} stands there {text.count(mutant.was)} times"
    module.write_text(text.replace(mutant.was, mutant.becomes))
    command = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *part.tests)
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    try:
        ended = subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, check=False, timeout=_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        module.write_text(text)
    assert ended.returncode not in _NOT_RUN, ended.stdout.decode()[-2_000:]
    return ended.returncode != 0


if __name__ == "__main__":
    mutants()
