"""How work on executors learns that its run was interrupted: a file that the driver makes then, and that they look for
before each piece of work. What was begun is done, and its results come back as ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from kidxlib.terminal import interrupts

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StopFile:
    """The file's path; None where executors would not see it: their work is then cancelled, its results are lost."""

    path: str | None = None

    def until_stopped(self, work: Iterable[_T]) -> Iterator[_T]:
        """On an executor: what there is to do, until the run is interrupted."""
        return iter(work) if self.path is None else takewhile(lambda _: not os.path.exists(self.path or ""), work)

    def stopping(self) -> AbstractContextManager[None]:
        """On the driver: while the context lasts work comes to its end where the run is interrupted."""
        return contextlib.nullcontext() if self.path is None else interrupts.stopping(self._make)

    def _make(self) -> None:
        if self.path is not None:
            Path(self.path).touch()
