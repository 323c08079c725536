"""Changes of log dirs between two builds: partitions come and go, logs grow, are cut and are lost."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.logs.random_logs import write_random_log

#: A change of a partition's directory, which may be missing.
Change = Callable[[Path, random.Random], None]


def add(partition: Path, rng: random.Random) -> None:
    """Make a partition of a few segments if it is missing."""
    if not os.path.lexists(partition):
        write_random_log(partition, rng)


def remove(partition: Path, rng: random.Random) -> None:
    shutil.rmtree(partition, ignore_errors=True)


def lose_log(partition: Path, rng: random.Random) -> None:
    if logs := sorted(partition.glob("*.log")):
        rng.choice(logs).unlink()


def resize(partition: Path, rng: random.Random) -> None:
    """Cut a log, or append zeros."""
    if logs := sorted(partition.glob("*.log")):
        os.truncate(rng.choice(logs), rng.randrange(1_000))


#: About as frequent as on real disks.
CHANGES: Final[tuple[Change, ...]] = (add, add, add, remove, lose_log, resize)
