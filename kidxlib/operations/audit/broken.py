"""Finds broken files for a repair without a catalog, where no earlier audit is recorded."""

from __future__ import annotations

from collections.abc import Mapping

from kidxlib.audit.finding import Verdict
from kidxlib.audit.rows import Kind, broken_files
from kidxlib.audit.tasks import partition_audits
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import JudgedFile
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.plan import Plan
from kidxlib.operations.audit.run_audit import run_audit
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build import without_brokers_own
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.terminal.audit import say_before_repair
from kidxlib.terminal.console import note
from kidxlib.text.words import counted


def broken_now(
    request: BuildRequest, plan: Plan, backend: Backend
) -> tuple[Mapping[PartitionKey, frozenset[str]], int]:
    """Audit a plan against what a build would write: the names of broken index and auxiliary files by partition, and
    how many logs are broken.
    """
    audits, _ = partition_audits(plan, request.sources, request.options_for, clean_shutdown=None, tiering=False)
    results = run_audit(backend.engine, plan.scan_tasks(), audits, request.sources, deep=False)
    rows = results.rows(Kind.FILE, JudgedFile.names(), [Among("verdict", (Verdict.BROKEN.value,))])
    files = without_brokers_own(plan, JudgedFile.of_arrow(rows))
    broken = broken_files(files)
    note(f"broken: {counted(sum(map(len, broken.values())), 'index file')} in {counted(len(broken), 'partition')}")
    return broken, say_before_repair(files)
