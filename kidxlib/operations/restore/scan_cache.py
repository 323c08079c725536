"""What was found in the logs of a restore's sources, kept in a file (`--scan-cache`): a later plan, and `--apply`, read
no log again that has not changed since.

Only logs without damage are kept, and of these only the ones that are copied: each copy is compared with what the plan
has of its source before any metadata is written.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.audit.startup.simulation import Recovery
from kidxlib.catalog.tables import FACTS_VERSION
from kidxlib.errors import UsageError, describe_error
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.read_logs import LogRead, log_path
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.past_end import NOTHING_PAST
from kidxlib.terminal.console import warn

OPTION: Final = "--scan-cache"
_KIND: Final = b"kidx.restore.scans"
_VERSION: Final = str(FACTS_VERSION).encode()
#: Where a log was written to so shortly before it is read, the time of the next write may be the same.
_RESTING: Final = timedelta(seconds=2)

#: What tells that a log has not changed. Nobody but the kernel sets `ctime`.
_OF_FILE: Final = ("device", "inode", "size", "mtime_ns", "ctime_ns")
_OPTIONS: Final = ("interval_bytes", "max_index_bytes")
#: Fields of `Recovery`; the others follow from the size, as the log is whole.
_FACTS: Final = (
    "next_offset",
    "map_end_offset",
    "batches",
    "records",
    "max_timestamp_ms",
    "highest_producer_id",
    "transactional_batches",
)
SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        *(pa.field(name, pa.uint64() if name in ("device", "inode") else pa.int64()) for name in _OF_FILE),
        *(pa.field(name, pa.int64()) for name in (*_OPTIONS, *_FACTS)),
        pa.field("epochs", pa.list_(pa.struct([("epoch", pa.int32()), ("start_offset", pa.int64())]))),
    ]
)

_FileState: TypeAlias = tuple[int, int, int, int, int]


class ScanCache:
    """The logs of a file, and those that this run asks for.

    Args:
        path: the file, or a link to it; None: there is none, and all logs are read.
        now: before this run lists logs.

    Raises:
        UsageError: the file is not one of these, or cannot be read; or no file can be written there.
    """

    def __init__(self, path: Path | None, now: datetime) -> None:
        self._path = path = None if path is None else Path(os.path.realpath(path))
        self._resting_since_ns = int((now - _RESTING).timestamp() * 1e9)
        self._rows: Mapping[str, dict[str, Any]] = {} if path is None else _read_rows(path)
        self._states: dict[str, _FileState] = {}

    def found_before(self, path: str, options: RecoverOptions) -> LogRead | None:
        """What was found in a log with these options; None: it was not read, or has changed since, or may have."""
        if self._path is None:
            return None
        try:
            status = os.stat(path)
        except OSError:  # who reads it says what is wrong
            return None
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if status.st_ctime_ns < self._resting_since_ns:
            self._states[path] = state
        row = self._rows.get(path)
        if row is None or tuple(row[name] for name in _OF_FILE) != state or not options.verify_crc:
            return None
        if any(row[name] != getattr(options, name) for name in _OPTIONS):
            return None
        recovery = Recovery(
            log_bytes=state[2],
            end=ScanEnd(Status.OK, None, state[2], None),
            past=NOTHING_PAST,
            **{name: row[name] for name in _FACTS},
        )
        return LogRead(options, recovery, tuple(EpochEntry(**entry) for entry in row["epochs"]))

    def write(self, forecasts: Iterable[Forecast]) -> None:
        """Write what is known of these logs in place of the file. A warning says so where that cannot be done."""
        if self._path is None:
            return
        rows = [row for forecast in forecasts for row in self._rows_of(forecast)]
        table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({_KIND: _VERSION}))
        try:
            descriptor, unfinished = tempfile.mkstemp(prefix=".kidx-scans-", dir=self._path.parent)
            with contextlib.ExitStack() as stack:
                stack.callback(Path(unfinished).unlink, missing_ok=True)
                with open(descriptor, "wb") as file:
                    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
                os.replace(unfinished, self._path)
        except OSError as error:
            warn(f"{OPTION} {self._path}: cannot be written: {_first_line(error)}; the next run reads all logs again")

    def _rows_of(self, forecast: Forecast) -> Iterator[dict[str, Any]]:
        for log in forecast.seen.logs:
            path = log_path(forecast.directory, log.base_offset)
            recovery, state = forecast.recoveries.get(log.base_offset), self._states.get(path)
            if recovery is None or recovery.end.status is not Status.OK or state is None or not log.is_read:
                continue
            if recovery.log_bytes == state[2] == recovery.end.position:
                yield {
                    "path": path,
                    **dict(zip(_OF_FILE, state, strict=True)),
                    **{name: getattr(forecast.options, name) for name in _OPTIONS},
                    **{name: getattr(recovery, name) for name in _FACTS},
                    "epochs": [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in log.epochs],
                }


def _read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by their logs' paths; none if there is no file, or another release has written it."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{OPTION} {path}: no file can be written there; name one in a directory where it can")
    if not os.path.lexists(path):
        return {}
    if not path.is_file():  # whoever opens a pipe waits
        raise UsageError(f"{OPTION} {path}: no regular file; name a new file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(_KIND)
            is_known = version == _VERSION and file.schema_arrow.equals(SCHEMA)
            rows = file.read().to_pylist() if is_known else []
    except (pa.ArrowException, ValueError) as error:  # names in a damaged footer may be no UTF-8
        raise UsageError(
            f"{OPTION} {path}: {_first_line(error)}; expected a file that kidx restore wrote, or none"
        ) from error
    except OSError as error:
        raise UsageError(f"{OPTION} {path}: cannot be read: {_first_line(error)}; name a new file") from error
    if version is None:
        raise UsageError(f"{OPTION} {path}: a Parquet file of something else; name a new file")
    return {row["path"]: row for row in rows}


def _first_line(error: Exception) -> str:
    return describe_error(error).split("\n", 1)[0]
