"""Reads index files as they are, if they can be read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.format import segment_files
from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX
from kidxlib.index.mapped_file import map_file
from kidxlib.storage.location import Location


def read_index(path: Location, use_mmap: bool) -> NDArray[np.uint8] | OSError | None:
    """The content of an index; None where there is none."""
    try:
        return map_file(str(path)) if use_mmap else np.frombuffer(path.read_bytes(), np.uint8)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def of_unreadable_file(suffix: str, error: OSError) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason="unreadable",
        detail=error.strerror or str(error),
        consequence="a broker that cannot read it takes its log dir out of use",
    )


def snapshot_files(directory: Location) -> list[Location]:
    return sorted(directory.glob(f"*{segment_files.SNAPSHOT_SUFFIX}"), key=str)


def read_snapshot_file(path: Location) -> bytes | None:
    if not path.is_file() or path.stat().st_size > SNAPSHOT_BYTES_MAX:
        return None
    return path.read_bytes()
