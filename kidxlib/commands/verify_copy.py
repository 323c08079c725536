"""The old spelling `verify --copy URL` of `kidx compare SOURCE URL --catalog DIR`, for `kidx verify` and the job
verify_index.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import click

from kidxlib.commands.command import FIRST, OnCatalog, kidx_command, option, parameter
from kidxlib.commands.compare import outcome_of_copies
from kidxlib.errors import UsageError
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.options import needing_packages
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.compare.copy_in_store import CopyRequest


@dataclass(frozen=True, kw_only=True)
class VerifyCopyCommand(OnCatalog):
    """The options of the old spelling `verify --copy URL`.

    Attributes:
        sources: the source that was copied; empty for the only one that the catalog has.
        require_checksums: a file that cannot be compared fails the run, too.
    """

    copy: str = parameter(click.argument("copy", metavar="URL"), at=FIRST)
    catalog: str | None = option("--catalog", metavar="DIR", help="The catalog of the log dir that was copied.")
    sources: tuple[str, ...] = parameter(shared_options.cataloged_sources)
    topics: str | None = parameter(shared_options.topics_to_read)
    inactive_only: bool = option("--inactive-only", is_flag=True, help="Leave out the last segment of each partition.")
    require_checksums: bool = option(
        "--require-checksums", is_flag=True, help="Exit 3 also where an object and the catalog have none in common."
    )
    now: None = None

    def __post_init__(self) -> None:
        with needing_packages("--copy", "copies"):
            _ = self.resolved  # what is wrong is told before anything is done

    @property
    def writes(self) -> bool:
        return False

    @cached_property
    def resolved(self) -> CopyRequest:
        from kidxlib.indexing.source import parse_topics
        from kidxlib.operations.compare.copy_in_store import CopyRequest
        from kidxlib.storage.location import plain_location
        from kidxlib.storage.store.s3 import ObjectPath, is_object

        copy = plain_location(self.copy)
        if not is_object(copy) or not ObjectPath.of(copy).key.partition("/")[0]:
            raise UsageError(
                f"--copy {self.copy}: expected s3://BUCKET/PREFIX; a copy on a disk is audited as any log dir is: "
                "kidx verify DIR"
            )
        if not self.catalog and not self.database:
            raise UsageError("--copy: there is nothing to compare it with; name the catalog with --catalog DIR")
        if len(self.sources) > 1:
            raise UsageError(f"--source: given {len(self.sources)} times; a copy is of one source")
        return CopyRequest(
            context=self.context,
            copy=ObjectPath.of(copy),
            source=self.sources[0] if self.sources else None,
            topics=parse_topics(self.settings.build.topics if self.topics is None else self.topics),
            inactive_only=self.inactive_only,
        )


def run_verify_copy(request: VerifyCopyCommand, backend: Backend) -> Outcome:
    """Compare the copy of a log dir with a catalog: now `kidx compare SOURCE URL --catalog DIR`."""
    return outcome_of_copies(request.resolved, backend, require_checksums=request.require_checksums)


verify_copy = kidx_command("verify --copy", VerifyCopyCommand, run_verify_copy, reports_as="verify_copy")
