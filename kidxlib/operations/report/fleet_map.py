"""The map of a fleet (`fleet_map`): the state of each partition in each source, and why it is not well."""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kidxlib.operations.compare.catalog_replica_verdict import Verdict
from kidxlib.operations.report.questions import (
    COUNTED,
    DAMAGED_BY_PARTITION,
    FINDINGS_BY_PARTITION,
    HELD,
    Answers,
    future_by_partition,
)
from kidxlib.text.words import counted

#: Source, topic and partition.
Cell = tuple[str, str, int]


class State(enum.IntEnum):
    """From the best to the worst; a piece of several partitions has the worst of them."""

    ABSENT = -1  # the source has no such partition, and nothing says that it should
    OK = 0
    UNKNOWN = 1  # nobody has looked since the last build
    WARNING = 2
    BAD = 3


_STATE_OF_VERDICT: Final = {
    Verdict.DIFFERS: State.BAD,
    Verdict.EPOCHS_DISAGREE: State.BAD,
    Verdict.LACKS: State.BAD,
    Verdict.BEHIND: State.WARNING,
}

_LOSSES_IN_WORDS: Final = {
    "partitions_missing": "the partition is missing",
    "partitions_twice": "in two log dirs of a broker",
    "partitions_misnamed": "the directory of another partition",
    "first_logs_missing": "its first logs are missing",
    "ends_below": "its log ends below a checkpoint",
}


def fleet_map(
    answers: Answers, sections: Mapping[str, Any], not_audited: Collection[str], now_ms: int
) -> dict[str, Any]:
    """The state of each partition (columns, in the order of topic and number) in each source (rows, by name).
    `not_audited` are sources of which no audit is newer than the last build. `now_ms` is the report's time, ms since
    the epoch.
    """
    held = {_cell_of_row(row): row for row in answers[HELD]}
    states = {
        cell: State.OK if row["is_audited"] and row["source"] not in not_audited else State.UNKNOWN
        for cell, row in held.items()
    }
    reasons: dict[Cell, list[str]] = defaultdict(list)
    problems = _problems_by_cell(answers, sections, now_ms)
    for cell, state, reason in itertools.chain(problems, _problems_of_whole_sources(held, sections["health"])):
        states[cell] = max(state, states.get(cell, State.OK))
        reasons[cell].append(reason)
    sources = sorted({source for source, _, _ in states})
    partitions = sorted({(topic, partition) for _, topic, partition in states})
    numbers = {name: number for number, name in enumerate(partitions)}
    rows = {source: [int(State.ABSENT)] * len(partitions) for source in sources}
    log_bytes = {source: [0] * len(partitions) for source in sources}
    for (source, topic, partition), state in states.items():
        rows[source][numbers[topic, partition]] = int(state)
    for (source, topic, partition), row in held.items():
        log_bytes[source][numbers[topic, partition]] = row["log_bytes"]
    return {
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
        "sources": [{"source": source, "states": rows[source], "log_bytes": log_bytes[source]} for source in sources],
        "reasons": [
            {"source": source, "topic": topic, "partition": partition, "state": int(state), "reasons": why}
            for state, (source, topic, partition), why in _cells_worst_first(states, reasons)
        ],
    }


def _cells_worst_first(
    states: Mapping[Cell, State], reasons: Mapping[Cell, list[str]]
) -> Iterator[tuple[State, Cell, list[str]]]:
    for cell, why in sorted(reasons.items(), key=lambda item: (-states[item[0]], item[0])):
        yield states[cell], cell, why


def _problems_by_cell(answers: Answers, sections: Mapping[str, Any], now_ms: int) -> Iterator[tuple[Cell, State, str]]:
    """What is wrong with a partition in a source, and nobody has accepted."""
    for row in answers[DAMAGED_BY_PARTITION]:
        yield _cell_of_row(row), State.BAD, f"{counted(row[COUNTED], 'segment')} damaged"
    for row in answers[FINDINGS_BY_PARTITION]:
        yield _cell_of_row(row), State.BAD, f"{counted(row[COUNTED], 'file')} broken or torn"
    for row in answers[future_by_partition(now_ms)]:
        yield _cell_of_row(row), State.BAD, "a timestamp in the future holds retention back"
    for row in sections["replicas"]["partitions"]:
        if (state := _STATE_OF_VERDICT.get(row["verdict"])) is not None:
            yield _cell_of_row(row), state, f"its replicas: {row['verdict']}"
    yield from _missing_by_cell(sections["health"])


def _missing_by_cell(health: Mapping[str, Any]) -> Iterator[tuple[Cell, State, str]]:
    for row in health["lost_gaps"]:
        if not row["is_accepted"]:
            yield (
                _cell_of_row(row),
                State.BAD,
                f"{counted(row['offsets'], 'offset')} missing from {row['first_offset']:,} on",
            )
    for name, what in _LOSSES_IN_WORDS.items():
        for row in health[name]:
            if row.get("accepted_by") is None:
                yield _cell_of_row(row), State.BAD, what


def _problems_of_whole_sources(held: Collection[Cell], health: Mapping[str, Any]) -> Iterator[tuple[Cell, State, str]]:
    """What is wrong with all partitions of a source."""
    of_sources = [(row["source"], State.BAD, "its log dir is older than others") for row in health["log_dirs_older"]]
    for row in health["not_reached"]:
        state = State.BAD if row["is_empty"] else State.UNKNOWN
        of_sources.append((row["source"], state, "nothing is in its log dir" if row["is_empty"] else "not reached"))
    for source, state, reason in of_sources:
        yield from ((cell, state, reason) for cell in held if cell[0] == source)


def _cell_of_row(row: Mapping[str, Any]) -> Cell:
    return row["source"], row["topic"], row["partition"]
