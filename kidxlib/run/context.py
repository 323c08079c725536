"""The context of a run, from its options and settings."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from kidxlib.errors import UsageError
from kidxlib.run.catalog_place import absolute, ensure_catalog_exists
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.terminal.options import parse_option
from kidxlib.text.times import parse_time

if TYPE_CHECKING:
    from kidxlib.run.settings import Settings  # a build without a catalog has no settings, and no package to read them


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
        """The context of a run. Only options name a catalog, and there may be none."""
        if catalog and database:
            raise UsageError("--catalog and --database: give one of them")
        return cls(
            catalog=None if catalog is None else absolute(catalog),
            database=database,
            now=datetime.now(UTC) if now is None else parse_option("--now", parse_time, now),
            event_log_dir=absolute(settings.spark.event_log_dir) if settings.spark.event_log_dir else None,
        )

    @classmethod
    def from_options_or_settings(
        cls, settings: Settings, catalog: str | None, database: str | None, now: str | None
    ) -> Self:
        """The context of a run. If options name no catalog, the settings do."""
        return cls.from_options(settings, catalog or (None if database else settings.build.catalog), database, now)

    @property
    def has_catalog(self) -> bool:
        return self.catalog is not None or self.database is not None

    def requests(self, by_workers: Requests) -> Requests:
        """The requests to object stores that the run, with its workers in other processes, has made so far."""
        return requests_made() - self.requests_before + by_workers

    def run_id(self, digits: str = "") -> str:
        """The run's id in the catalog: its time and eight hexadecimal digits, the first of `digits` or random ones."""
        return f"{self.now:%Y%m%dT%H%M%SZ}-{(digits or uuid.uuid4().hex)[:8]}"

    def with_catalog(self) -> Self:
        """This context, after a check that the catalog exists: for a command that makes none."""
        if self.catalog is not None:
            ensure_catalog_exists(self.catalog)
        return self
