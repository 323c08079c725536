"""What an operation asks of an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from kidxlib.engine.shared_rows import SharedRows
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.phase import Done


class Engine(Protocol):
    """Workers that do units of work at the same time."""

    @property
    def cores(self) -> int:
        """How many units are done at a time."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all workers are on the machine of the command, so that a lock on its files covers them."""

    def start(self) -> None:
        """There will be work that reads logs: workers may be started."""

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts, work that was begun comes to its end where the run is interrupted, and no other is
        begun. The interruption is raised at its end, so that what was done can be recorded.
        """

    def share(self, rows: pa.Table) -> SharedRows:
        """Put rows where workers read them: they are there as long as the engine is.

        Raises:
            KidxError: they cannot be written.
        """

    def run(self, work: Work[Any]) -> Staged:
        """Do the units of some work.

        Returns:
            The rows of the units that were done. They are there as long as the engine is.

        Raises:
            UsageError: a worker does not see a directory of the work.
            KidxError: a unit cannot be done; or workers die, though they map no file.
        """

    def sweep(self, older_than_ms: int) -> None:
        """Remove what killed runs have staged at a URL, by the heartbeats there; what has none, where it was last
        written before then (milliseconds since the epoch). What they left in a directory is the catalog's to sweep.
        """

    def done(self) -> Done:
        """How much was done in all that was run, as units end."""

    def requests(self) -> Requests:
        """How many requests of object stores workers have made in processes of their own, as units end."""
