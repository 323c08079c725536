"""What the last audits found broken, as a plan to rebuild it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kidxlib.build.plan import Plan, repairs
from kidxlib.build.source import Source
from kidxlib.catalog.findings import JudgedFile
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.storage.location import location
from kidxlib.terminal.console import note


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
    files = without_brokers_own(plan, catalog.broken_files([source.name for source in sources]))
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


def without_brokers_own(plan: Plan, files: Sequence[JudgedFile]) -> list[JudgedFile]:
    """What was found broken, without a broker's leader epochs and producer snapshots beside the logs, where the build
    writes elsewhere. Says that they are left.
    """
    elsewhere = {str(each.directory.path) for each in plan.partitions if not each.in_place}
    own = [
        file
        for file in files
        if file.file in (LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX) and os.path.dirname(file.path) in elsewhere
    ]
    if own:
        more = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        note(
            f"broken, and left as it is, as this build writes elsewhere: {own[0].path}{more}; kidx verify says what "
            "comes of it"
        )
    return [file for file in files if file not in own]
