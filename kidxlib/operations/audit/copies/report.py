"""What comparing a copy came to: its counts, the exit code, and what is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kidxlib.audit.copies import NOT_COMPARABLE, PROBLEMS, CopyVerdict
from kidxlib.catalog.results.audit import CopiesRow, CopyRow
from kidxlib.engine.staged import Staged
from kidxlib.operations.audit.copies.request import CopyRequest
from kidxlib.run.result import RunResult
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.audit import SHOWN
from kidxlib.terminal.build import print_requests
from kidxlib.terminal.console import print_json, print_line, print_more, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found.

    Attributes:
        staged: rows of `COMPARED`.
        counts: of each verdict that some copy has.
        requests: of the store.
    """

    staged: Staged
    source: str
    counts: Mapping[CopyVerdict, CopiesRow]
    requests: Requests

    @classmethod
    def of(cls, staged: Staged, source: str, requests: Requests) -> Compared:
        """Count what workers have staged."""
        rows = staged.rows("count").group_by("verdict")
        names = ("segments", "log_bytes")
        sums = rows.aggregate([(name, "sum") for name in names]).rename_columns(["verdict", *names])
        counts = {CopyVerdict(row.verdict): row for row in CopiesRow.of_arrow(sums)}
        return cls(staged, source, counts, requests)

    def segments(self, *verdicts: CopyVerdict) -> int:
        """How many copies have one of some verdicts."""
        return sum(self.counts[verdict].segments for verdict in verdicts if verdict in self.counts)

    def rows(self, kind: str) -> Iterator[CopyRow]:
        """The copies of one kind, one by one and in order."""
        for batch in self.staged.batches(kind):
            yield from CopyRow.of_arrow(batch)

    def result(self, request: CopyRequest) -> RunResult:
        """How the run ended."""
        fails = self.segments(*PROBLEMS) or (request.require_checksums and self.segments(*NOT_COMPARABLE))
        return RunResult(
            code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
            counts={
                "segments": self.segments(*CopyVerdict),
                **{verdict.value.replace("-", "_"): self.segments(verdict) for verdict in CopyVerdict},
            },
            bytes=sum(row.log_bytes for row in self.counts.values()),
            requests=self.requests,
        )


def show_json(request: CopyRequest, compared: Compared, catalog: str) -> None:
    """Print the JSON object.

    Args:
        catalog: where that is.
    """
    print_json(
        {
            "copy": str(request.copy),
            "source": compared.source,
            "catalog": catalog,
            "segments": {verdict.value: compared.segments(verdict) for verdict in CopyVerdict},
            "requests": compared.requests.as_json(),
            "problems": [_as_json(row) for row in compared.rows("problem")],
            "not_comparable": [_as_json(row) for row in compared.rows("unknown")],
        }
    )


def _as_json(row: CopyRow) -> dict[str, Any]:
    return {name: value for name, value in row.values().items() if name != "source"}


def show(request: CopyRequest, compared: Compared, catalog: str) -> None:
    """Print what was found, problems first.

    Args:
        catalog: where that is.
    """
    print_table(
        f"copy of {compared.source} at {request.copy}",
        ("verdict", "segments", "bytes of logs"),
        [
            (
                verdict.value,
                compared.segments(verdict),
                compared.counts[verdict].log_bytes if verdict in compared.counts else 0,
            )
            for verdict in CopyVerdict
        ],
        text_columns=1,
    )
    for kind, verdicts in (("problem", PROBLEMS), ("unknown", NOT_COMPARABLE)):
        for row in itertools.islice(compared.rows(kind), SHOWN):
            print_line(f"{row.verdict}: {row.object}: {row.detail}")
        print_more(compared.segments(*verdicts) - SHOWN, "; --json has them all")
    print_line("as-uploaded: the store got the log's bytes when the object was written; none was read back now")
    print_requests(compared.requests)
    print_line(f"catalog:     {catalog}, source {compared.source}")
    if (unknown := compared.segments(*NOT_COMPARABLE)) and not request.require_checksums:
        of_all = f"{unknown:,} of {counted(compared.segments(*CopyVerdict), 'segment')}"
        warn(f"{of_all} cannot be compared: nothing is known of their copies; --require-checksums makes that exit 3")
