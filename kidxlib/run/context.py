"""The context of a run; checks of its catalog's directory or URL before Spark starts; and the catalog's tables through
delta-rs, on a disk or in S3.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import COMMIT_LOCK_FILE, LAYOUT_VERSION, TABLES, made_by_an_older_release
from kidxlib.errors import UsageError
from kidxlib.storage.location import absolute_place, ensure_text
from kidxlib.storage.log_dir import why_not_to_build_in
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.storage.store.s3 import SCHEME, ObjectPath, is_object
from kidxlib.terminal.options import needing_packages, parse_option
from kidxlib.text.times import parse_time

if TYPE_CHECKING:  # extras, and slow to import; a run without a catalog needs neither
    from kidxlib.run.settings import Settings
    from kidxlib.tables.delta_tables import DeltaTables

#: The directory of a catalog for the rows of workers.
STAGING: Final = "_staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The catalog, the time, and the place of Spark's event logs.

    Attributes:
        catalog: absolute path or URL of the catalog's directory; None if `database` names it, or there is none.
        event_log_dir: absolute path or URL of a directory; None: no event logs.
        requests_before: requests to object stores that this process made before this run.
    """

    catalog: str | None
    database: str | None
    now: datetime
    event_log_dir: str | None
    requests_before: Requests = field(default_factory=requests_made, compare=False)

    @classmethod
    def from_options(cls, settings: Settings, catalog: str | None, database: str | None, now: str | None) -> Self:
        """The context of a run. Without an option that names a catalog, there is none."""
        if catalog and database:
            raise UsageError("--catalog and --database: give one of them")
        return cls(
            catalog=None if catalog is None else absolute_place(catalog),
            database=database,
            now=datetime.now(UTC) if now is None else parse_option("--now", parse_time, now),
            event_log_dir=absolute_place(settings.spark.event_log_dir) if settings.spark.event_log_dir else None,
        )

    @classmethod
    def from_options_or_settings(
        cls, settings: Settings, catalog: str | None, database: str | None, now: str | None
    ) -> Self:
        """The context of a run. Without an option that names a catalog, it is that of the settings."""
        return cls.from_options(settings, catalog or (None if database else settings.build.catalog), database, now)

    @property
    def has_catalog(self) -> bool:
        return self.catalog is not None or self.database is not None

    def requests(self, by_workers: Requests) -> Requests:
        """The requests to object stores that the run, with its workers in other processes, has made so far."""
        return requests_made() - self.requests_before + by_workers

    def run_id(self, digits: str = "") -> str:
        """The run's id in the catalog: its time and eight hexadecimal digits, the first ones of `digits` or random."""
        return f"{self.now:%Y%m%dT%H%M%SZ}-{(digits or uuid.uuid4().hex)[:8]}"

    def with_existing_catalog(self) -> Self:
        """Check that the catalog exists, for a command that does not make one. Return this context."""
        if self.catalog is not None:
            ensure_catalog_exists(self.catalog)
        return self


def ensure_catalog_exists(path: str) -> None:
    """Refuse a directory without a catalog, before Spark starts. URLs are not checked."""
    if "://" not in path and not _has_catalog(path):
        raise no_catalog(f"--catalog {path}")


def ensure_catalog_usable(path: str) -> None:
    """Refuse a place where a run cannot make or use its catalog, before Spark starts."""
    ensure_text("--catalog ", path)
    if is_object(path):
        _ensure_usable_in_store(path)
    if "://" in path:
        return
    _ensure_writable(path)
    if _has_catalog(path):
        return
    option = f"--catalog {path}"
    if os.path.isdir(path):
        try:
            _ensure_no_foreign_files(option, os.listdir(path))
        except OSError as error:
            raise UsageError(f"{option}: cannot be listed: {error.strerror}") from error
    for directory in (Path(path), *Path(path).parents):
        if (why := why_not_to_build_in(directory)) is not None:
            raise UsageError(f"{option}: no catalog there, and none is made there: {why}; expected a place of its own")


def _ensure_usable_in_store(path: str) -> None:
    try:
        names = [entry.name for entry in ObjectPath.of(path).iterdir()]
    except FileNotFoundError:  # nothing is there
        return
    except OSError as error:
        raise UsageError(f"--catalog {path}: {error.strerror}") from error
    if SEGMENTS.name not in names:
        _ensure_no_foreign_files(f"--catalog {path}", names)


def _ensure_no_foreign_files(option: str, names: Iterable[str]) -> None:
    """Refuse to make a catalog in a directory with files that are not kidx's. It may have tables of kidx, from a build
    that was stopped while it made them.
    """
    ours = {STAGING, COMMIT_LOCK_FILE, *(table.name for table in TABLES), "lost+found"}
    others = sorted(name for name in names if name not in ours and not name.startswith("."))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(
            f"{option}: no catalog there, and it is not empty: it holds {others[0]}{more}; "
            "expected a catalog, or a new or empty directory"
        )


def _has_catalog(path: str) -> bool:
    """Whether a directory has a whole catalog. The table that is made last has no version until then."""
    return os.path.isdir(f"{path}/{SEGMENTS.name}/_delta_log")


def no_catalog(option: str) -> UsageError:
    """The error of a run whose catalog is not where an option says."""
    return UsageError(
        f"{option}: no catalog there; look whether the path is right, or make one: kidx build, or ./spark-submit.sh "
        "build_index, with this option and without --repair"
    )


def _ensure_writable(path: str) -> None:
    nearest = next(directory for directory in (Path(path), *Path(path).parents) if os.path.exists(directory))
    if not os.path.isdir(nearest):
        raise UsageError(
            f"--catalog {path}: {nearest} is a file; expected a directory, or a place where one can be made"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"--catalog {path}: {nearest} cannot be written by this user; run it as its owner, or name another place"
        )


def catalog_tables_at(option: str, place: str) -> DeltaTables:
    """Open the tables of the catalog that an option of a run names, which may not exist yet."""
    path = absolute_place(place)
    ensure_text(f"{option} ", path)
    if "://" in path and not is_object(path):
        raise UsageError(
            f"{option} {path}: kidx keeps catalogs in directories and at {SCHEME} URLs; use the jobs of "
            "./spark-submit.sh for others"
        )
    with needing_packages(option):
        from kidxlib.tables.delta_tables import DeltaTables
    return DeltaTables(path)


def existing_catalog_tables(option: str, place: str) -> DeltaTables:
    """Open the tables of the catalog that an option of a run names, which must exist, in the present layout."""
    tables = catalog_tables_at(option, place)
    if (version := tables.catalog_version(SEGMENTS)) is None:
        raise no_catalog(f"{option} {place}")
    if version < LAYOUT_VERSION:
        raise made_by_an_older_release(tables.place(SEGMENTS), version)
    return tables
