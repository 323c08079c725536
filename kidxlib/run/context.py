"""Where a run works: the catalog, the time it is, and the place of Spark's event logs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from kidxlib.errors import UsageError
from kidxlib.run.catalog_place import absolute, ensure_catalog_exists
from kidxlib.run.options import parse_option
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.text.times import parse_time

if TYPE_CHECKING:
    from kidxlib.run.settings import Settings  # a build without a catalog has no settings, and no package to read them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The catalog, the time it is, and the place of Spark's event logs.

    Attributes:
        catalog: absolute path or URL of its directory; None where `database` names it, or there is none.
        event_log_dir: absolute path or URL of a directory; None where no logs are wanted.
        asked_before: of object stores, by this process, for something else.
    """

    catalog: str | None
    database: str | None
    now: datetime
    event_log_dir: str | None
    asked_before: Requests = field(default_factory=requests_made, compare=False)

    @classmethod
    def given(cls, settings: Settings, catalog: str | None, database: str | None, now: str | None) -> Self:
        """The context that options and settings give. The catalog is that of the options alone, and may be none."""
        if catalog and database:
            raise UsageError("--catalog and --database: give one of them")
        return cls(
            catalog=None if catalog is None else absolute(catalog),
            database=database,
            now=datetime.now(UTC) if now is None else parse_option("--now", parse_time, now),
            event_log_dir=absolute(settings.spark.event_log_dir) if settings.spark.event_log_dir else None,
        )

    @classmethod
    def of(cls, settings: Settings, catalog: str | None, database: str | None, now: str | None) -> Self:
        """The context of a run. If options name no catalog, it is the one of the settings."""
        return cls.given(settings, catalog or (None if database else settings.build.catalog), database, now)

    @property
    def has_catalog(self) -> bool:
        """Whether there is one."""
        return self.catalog is not None or self.database is not None

    def asked(self, by_workers: Requests) -> Requests:
        """How many requests of object stores the run has made so far.

        Args:
            by_workers: in processes of their own.
        """
        return requests_made() - self.asked_before + by_workers

    def run_id(self, digits: str = "") -> str:
        """What a run is called in the catalog: its time, and eight hexadecimal digits; random ones, or the first given.

        Args:
            digits: the same for runs that are to have the same id, eight or more.
        """
        return f"{self.now:%Y%m%dT%H%M%SZ}-{(digits or uuid.uuid4().hex)[:8]}"

    def with_catalog(self) -> Self:
        """This context, for a job that makes no catalog."""
        if self.catalog is not None:
            ensure_catalog_exists(self.catalog)
        return self
