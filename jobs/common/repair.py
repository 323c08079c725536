"""What the last audits found broken, as a plan to rebuild it."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.common.catalog import Catalog
from jobs.common.tables import FINDINGS
from kidxlib.audit import Verdict
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.names import LOG_SUFFIX
from kidxlib.objects import location
from kidxlib.plan import Plan, repairs
from kidxlib.show_audit import broken_files, say_broken_logs


def repairs_of_last_audits(catalog: Catalog, plan: Plan, sources: Sequence[Source]) -> Plan:
    """What of a plan was broken when each partition was audited last. Broken logs are told: no repair mends them.

    Raises:
        UsageError: one was never audited, or the files that were audited are not those that would be written.
    """
    audited_sources = catalog.audited_sources()
    for source in sources:
        if source.name not in audited_sources:
            raise UsageError(
                f"--repair: no audit of source {source.name} in {catalog.path}; make one with ./spark-submit.sh "
                f"verify_index --source {source.name}={source.path} --catalog {catalog.path}"
            )
    found = catalog.last_findings([source.name for source in sources], [Verdict.BROKEN.value])
    files = found.select(*FINDINGS.key, "verdict", "path").toArrow().to_pylist()
    folders = {partition.key: str(partition.index_folder) for partition in plan.partitions}
    for row in files:
        folder = folders.get((row["source"], row["topic"], row["partition"]))
        audited = str(location(row["path"]).parent)
        if row["file"] != LOG_SUFFIX and folder not in (None, audited):
            raise UsageError(
                f"--repair: the last audit looked at {audited}, this build would write in {folder}; give both the same "
                "--index-dir, or audit beside the logs and build with --in-place"
            )
    say_broken_logs(row["path"] for row in files if row["file"] == LOG_SUFFIX)
    return repairs(plan, broken_files(files))
