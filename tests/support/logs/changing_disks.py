"""Log dirs to which something happens between two builds: partitions come and go, logs grow, are cut and are lost."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.logs.random_logs import write_random_log

#: What may happen to a partition's directory, whether it is there or not.
Change = Callable[[Path, random.Random], None]


def add(partition: Path, rng: random.Random) -> None:
    """A new one has a few segments."""
    if not os.path.lexists(partition):
        write_random_log(partition, rng)


def remove(partition: Path, rng: random.Random) -> None:
    shutil.rmtree(partition, ignore_errors=True)


def lose_log(partition: Path, rng: random.Random) -> None:
    if logs := sorted(partition.glob("*.log")):
        rng.choice(logs).unlink()


def resize(partition: Path, rng: random.Random) -> None:
    """A log is cut, or zeros come after it."""
    if logs := sorted(partition.glob("*.log")):
        os.truncate(rng.choice(logs), rng.randrange(1_000))


#: In about the proportion in which they happen.
CHANGES: Final[tuple[Change, ...]] = (add, add, add, remove, lose_log, resize)
