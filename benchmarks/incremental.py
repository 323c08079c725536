"""A log dir of many segments, built, built again with nothing changed, and again with one segment in a hundred new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from benchmarks import machine
from benchmarks.generate import SegmentContent, write_segment
from kidxlib import formats
from kidxlib.console import note, print_line, print_table
from kidxlib.errors import KidxError
from kidxlib.names import LOG_SUFFIX, segment_file
from tests.support.opened_files import OpenedFiles

PROJECT: Final = Path(__file__).resolve().parents[1]
#: A file system allows some tens of thousands of links to one file, so each partition has a file of its own.
SEGMENTS_A_PARTITION: Final = 1000
SEGMENT_BYTES: Final = 64 * 1024


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), default=100_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def incremental(segments: int, folder: Path) -> None:
    """Build a log dir of hard links three times through ./spark-submit.sh, and count the logs that are opened.

    The three runs: all segments new; nothing changed; one segment in a hundred new.
    """
    folder = folder / f"incremental-{segments}"
    shutil.rmtree(folder, ignore_errors=True)
    log_dir = folder / "kafka-logs"
    note(f"linking {segments} segments below {log_dir} …")
    partitions = [_partition(log_dir / f"bench-{number}") for number in range(segments // SEGMENTS_A_PARTITION)]
    runs = {"all new": _build(folder, None), "nothing changed": _build(folder, partitions)}
    for partition in partitions:
        for number in range(SEGMENTS_A_PARTITION // 100):
            _link(partition, SEGMENTS_A_PARTITION + number)
    runs["1 % new"] = _build(folder, partitions)

    if runs["nothing changed"]["logs_opened"] != 0:
        raise KidxError(f"{runs['nothing changed']['logs_opened']} logs were opened though nothing had changed")
    columns = ("", "segments read", "logs opened", "seconds in all", "of these reading", "segments a second")
    print_table(
        f"{segments:,} segments of {SEGMENT_BYTES:,} bytes in {len(partitions):,} partitions",
        columns,
        [
            (
                name,
                run["segments"],
                "not counted" if run["logs_opened"] is None else run["logs_opened"],
                f"{run['wall_seconds']:.1f}",
                f"{run['scan_seconds']:.1f}",
                f"{(run['segments'] + run['unchanged']) / run['wall_seconds']:,.0f}",
            )
            for name, run in runs.items()
        ],
        text_columns=1,
    )
    result = folder.parent / "incremental.json"
    result.write_text(json.dumps({"machine": machine.describe(), "runs": runs}, indent=2) + "\n")
    print_line(f"all figures: {result}")


def _partition(folder: Path) -> Path:
    """A folder with `SEGMENTS_A_PARTITION` segments that are links to one file, valid under each of their names."""
    folder.mkdir(parents=True)
    content = folder.parent.with_name(f"{folder.name}.content")
    write_segment(content, SegmentContent(magic=2, batch_bytes=16 * 1024), SEGMENT_BYTES)
    # Offsets above every base offset that the links are named by; a batch's base offset is not part of its checksum.
    data = np.fromfile(content, np.uint8)
    position = 0
    while position < len(data):
        header = data[position : position + formats.BATCH_V2.itemsize].view(formats.BATCH_V2)[0]
        header["base_offset"] += 10 * SEGMENTS_A_PARTITION
        position += formats.LOG_OVERHEAD + int(header["batch_length"])
    data.tofile(content)
    for number in range(SEGMENTS_A_PARTITION):
        _link(folder, number)
    return folder


def _link(folder: Path, base_offset: int) -> None:
    os.link(folder.parent.with_name(f"{folder.name}.content"), folder / segment_file(base_offset, LOG_SUFFIX))


def _build(folder: Path, counted: list[Path] | None) -> dict[str, Any]:
    """Run the job; with `counted` partitions, note how many of their logs were opened."""
    places = {
        "--source": f"bench={folder / 'kafka-logs'}",
        "--index-dir": folder / "index",
        "--catalog": folder / "catalog",
    }
    command: list[str | Path] = [PROJECT / "spark-submit.sh", "build_index", "--json"]
    for option, value in places.items():
        command += [option, str(value)]
    start = time.perf_counter()
    with OpenedFiles(counted or []) as opened:
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - start
    return {**json.loads(ended.stdout), "wall_seconds": seconds, "logs_opened": len(opened.logs()) if counted else None}
