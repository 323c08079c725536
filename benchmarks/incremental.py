"""A log dir of many segments, built, built again with nothing changed, and again with one segment in a hundred new."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.event_log import EventLog, seconds_of_build
from benchmarks.figures import Table, Target, record
from benchmarks.links import SEGMENT_BYTES, SEGMENTS_A_PARTITION, content_file, link_segments, write_log_dir
from benchmarks.submit import places, run_job
from kidxlib.errors import KidxError
from kidxlib.terminal.console import note
from tests.support.opened_files import OpenedFiles

#: Base offsets of what each partition gets in the end: one segment in a hundred.
NEWEST: Final = range(SEGMENTS_A_PARTITION, SEGMENTS_A_PARTITION * 101 // 100)
ALL_NEW, UNCHANGED, SOME_NEW, ALONE = "all new", "nothing changed", "1 % new", "these alone"


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), default=100_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def incremental(segments: int, directory: Path) -> None:
    """Build a log dir of hard links three times through ./spark-submit.sh, and count the logs that are opened.

    The three runs: all segments new; nothing changed; one segment in a hundred new, the newest of each partition. A
    fourth builds those alone, in a log dir of their own.
    """
    place = directory.resolve() / f"incremental-{segments}"
    shutil.rmtree(place, ignore_errors=True)
    note(f"linking {segments:,} segments below {place} …")
    partitions = write_log_dir(place / "kafka-logs", SEGMENT_BYTES, segments)
    runs = {ALL_NEW: _build(place), UNCHANGED: _build(place, partitions)}
    for partition in partitions:
        link_segments(partition, NEWEST)
    runs[SOME_NEW] = _build(place, partitions)
    runs[ALONE] = _build(_those_alone(place, partitions))

    if runs[UNCHANGED]["logs_opened"] != 0:
        raise KidxError(f"{runs[UNCHANGED]['logs_opened']} logs were opened though nothing had changed")
    record(directory, "incremental", _targets(runs), [_table(runs)], runs=runs)


def _table(runs: dict[str, dict[str, Any]]) -> Table:
    parts = {"start_up": "start-up and listing", "scan": "reading and publishing", "fold": "fold", "driver": "driver"}
    rows = [
        (
            name,
            f"{run['segments']:,}",
            "not counted" if run["logs_opened"] is None else f"{run['logs_opened']:,}",
            f"{run['wall_seconds']:.1f}",
            *(f"{run['parts'][part]:.1f}" for part in parts),
        )
        for name, run in runs.items()
    ]
    columns = ("", "segments read", "logs opened", "seconds in all", *parts.values())
    return Table(name="builds", columns=columns, rows=rows)


def _targets(runs: dict[str, dict[str, Any]]) -> list[Target]:
    built, unchanged, some_new = runs[ALL_NEW], runs[UNCHANGED], runs[SOME_NEW]
    share = built["wall_seconds"] / built["segments"] * some_new["segments"]
    return [
        Target(name="nothing changed: a build", unit="s", values=(unchanged["wall_seconds"],), at_most=60),
        Target(name="nothing changed: logs opened", unit="logs", values=(unchanged["logs_opened"],), at_most=0),
        Target(name="all new: a build", unit="s", values=(built["wall_seconds"],)),
        Target(
            name="1 % new: a build, to that with nothing changed and a build of the new ones alone",
            unit="s",
            values=(some_new["wall_seconds"],),
            at_most=unchanged["wall_seconds"] + runs[ALONE]["wall_seconds"],
        ),
        Target(
            name="1 % new: a build, to that with nothing changed and the new ones' share of the first",
            unit="s",
            values=(some_new["wall_seconds"],),
            at_most=unchanged["wall_seconds"] + share,
        ),
        Target(name="1 % new: a build of these alone", unit="s", values=(runs[ALONE]["wall_seconds"],)),
    ]


def _those_alone(place: Path, partitions: Sequence[Path]) -> Path:
    """A place with nothing but the newest segments."""
    alone = place / "alone"
    for partition in partitions:
        directory = alone / "kafka-logs" / partition.name
        directory.mkdir(parents=True)
        os.link(content_file(partition), content_file(directory))
        link_segments(directory, NEWEST)
    return alone


def _build(place: Path, counted: Sequence[Path] = ()) -> dict[str, Any]:
    """Run the job, and note how many logs of some partitions were opened."""
    with OpenedFiles(counted) as opened:
        run = run_job("build_index", *places(place), events=place / "events")
    return {
        **run.json,
        "wall_seconds": run.seconds,
        "parts": seconds_of_build(run, EventLog.read(place / "events")),
        "memory": run.memory,
        "logs_opened": len(opened.logs()) if counted else None,
    }
