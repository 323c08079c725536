"""What the last audits found broken, as a plan to make it anew."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.common.catalog import Catalog
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.names import LOG_SUFFIX
from kidxlib.objects import location
from kidxlib.plan import Plan, repairs
from kidxlib.show_audit import broken_files


def repairs_of_last_audits(catalog: Catalog, plan: Plan, sources: Sequence[Source]) -> Plan:
    """What of a plan was broken when each source was audited last.

    Raises:
        UsageError: one was never audited, or the files that were audited are not those that would be written.
    """
    audits = catalog.last_audits([source.name for source in sources])
    for source in sources:
        if source.name not in audits:
            raise UsageError(
                f"--repair: no audit of source {source.name} in {catalog.path}; make one with ./spark-submit.sh "
                f"verify_index --source {source.name}={source.path} --catalog {catalog.path}"
            )
    files = catalog.broken(audits)
    folders = {partition.key: str(partition.index_folder) for partition in plan.partitions}
    for row in files:
        folder = folders.get((row["source"], row["topic"], row["partition"]))
        audited = str(location(row["path"]).parent)
        if row["file"] != LOG_SUFFIX and folder not in (None, audited):
            raise UsageError(
                f"--repair: the last audit looked at {audited}, this build would write in {folder}; give both the same "
                "--index-dir, or audit beside the logs and build with --in-place"
            )
    return repairs(plan, broken_files(files))
