"""What the last audits found broken, as a plan to rebuild it."""

from __future__ import annotations

from collections.abc import Sequence

from kidxlib.build.plan import Plan, repairs
from kidxlib.build.source import Source
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.storage.location import location


def repairs_of_last_audits(catalog: TablesCatalog, plan: Plan, sources: Sequence[Source]) -> Plan:
    """What of a plan was broken when each partition was audited last. Broken logs are reported: no repair mends them.

    Raises:
        UsageError: one was never audited, or the files that were audited are not those that would be written.
    """
    from kidxlib.audit.rows import broken_files  # who repairs nothing does not wait for what an audit imports
    from kidxlib.terminal.audit import say_before_repair

    audited_sources = catalog.audited_sources()
    for source in sources:
        if source.name not in audited_sources:
            raise UsageError(
                f"--repair: no audit of source {source.name} in {catalog.path}; make one with "
                f"kidx verify --source {source.name}={source.path} --catalog {catalog.path}"
            )
    files = catalog.broken_files([source.name for source in sources])
    directories = {partition.key: str(partition.index_directory) for partition in plan.partitions}
    for file in files:
        directory = directories.get(file.partition_key)
        audited = str(location(file.path).parent)
        if file.file != LOG_SUFFIX and directory not in (None, audited):
            raise UsageError(
                f"--repair: the last audit looked at {audited}, this build would write in {directory}; give both "
                "the same --index-dir, or audit beside the logs and build with --in-place"
            )
    say_before_repair(files)
    return repairs(plan, broken_files(files))
