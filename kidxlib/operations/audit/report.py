"""What an audit comes to: its counts, the exit code, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kidxlib.audit.finding import Verdict
from kidxlib.audit.startup.aside import Aside, lines_of
from kidxlib.audit.summary import AuditSummary
from kidxlib.build.plan import Plan
from kidxlib.build.skipped import unlistable_as_json
from kidxlib.catalog.findings import FINDINGS
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.operations.audit.accepted import AcceptedFindings
from kidxlib.operations.audit.cataloged import looked_in
from kidxlib.operations.audit.found import Found
from kidxlib.operations.audit.request import AuditRequest
from kidxlib.run.index_options import known_as_json, lines_of_known
from kidxlib.storage.location import Location, as_text
from kidxlib.terminal.audit import SHOWN, show_json, show_summary
from kidxlib.terminal.audit import exit_code as exit_code_of
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.sources import as_line


def exit_code(plan: Plan, summary: AuditSummary, fail_on: Verdict) -> ExitCode:
    """The code that says whether there are problems. A plan without a segment is one, and what cannot be listed."""
    return ExitCode.PROBLEMS_FOUND if plan.unlistable or plan.empty else exit_code_of(summary, fail_on)


def counts(plan: Plan, summary: AuditSummary, accepted: AcceptedFindings, *, partitions_gone: int) -> dict[str, int]:
    """What a run has dealt with."""
    found = {
        "partitions": len(plan.partitions),
        "segments": plan.segments.num_rows,
        "not_ready": summary.not_ready_count,
        "segments_lost": summary.lost_count,
        "partitions_gone": partitions_gone,
        "unlistable": len(plan.unlistable),
        "gaps": len(summary.gaps.lost),
        "in_use": summary.in_use[0],
        "in_use_bytes": summary.in_use[1],
    }
    for verdict in Verdict:
        found[verdict.value] = sum(count for (_, each), count in summary.files.items() if each == verdict)
        if verdict is not Verdict.IDENTICAL:
            found[f"logs_{verdict}"] = summary.logs(verdict)
    return {**found, "accepted": accepted.count}


def show_audit_json(
    request: AuditRequest,
    plan: Plan,
    found: Found,
    summary: AuditSummary,
    accepted: AcceptedFindings,
    catalog: str | None,
    *,
    aside: Sequence[Aside],
    **more: object,
) -> None:
    """Print the JSON object.

    Args:
        catalog: where it is recorded.
        aside: folders that Kafka moves, deletes or has set aside.
        more: keys, as what was read and what was left out.
    """
    audit_id = request.audit_id
    of_run: dict[str, Any] = {}
    if audit_id is not None:
        of_run = {"audit_id": audit_id, "catalog": catalog, "accepted": accepted.count}
        of_run["accepted_findings"] = accepted.as_json()
    of_run |= unlistable_as_json(plan.unlistable.values()) | {
        "cluster_metadata": known_as_json(request.known_topics, plan),
        "aside": [{"path": as_text(each.path), "kind": each.kind, "bytes": each.bytes} for each in aside],
    }
    show_json(found.all_rows(), summary, **more, **found.gaps.as_json(), **of_run)


def show_audit(
    request: AuditRequest,
    plan: Plan,
    summary: AuditSummary,
    accepted: AcceptedFindings,
    catalog: str | None,
    aside: Sequence[Aside],
    without_metadata: Sequence[Location],
    not_compared: Sequence[str],
) -> None:
    """Print what was found, where, and where that is recorded.

    Args:
        catalog: where it is.
        aside: folders that Kafka moves, deletes or has set aside.
        without_metadata: log dirs of which nobody knows the cluster's metadata.
        not_compared: what could not be compared with checkpoints.
    """
    audit_id = request.audit_id
    title = ", ".join(as_text(source.path) for source in request.sources) if audit_id is None else f"audit {audit_id}"
    show_summary(title, summary, looked_in(plan.partitions))
    for line in lines_of(aside):
        print_line(line)
    accepted.show()
    for line in not_compared[:SHOWN]:
        print_line(f"not compared: {line}")
    print_more(len(not_compared) - SHOWN, "; --json has them all")
    if without_metadata:
        more = f" and {len(without_metadata) - 1:,} more" if len(without_metadata) > 1 else ""
        print_line(
            f"not compared: {without_metadata[0]}{more}: topic ids and assignments of folders, and which partitions "
            f"should be there, as no {METADATA_DIRECTORY} can be read; --cluster-metadata names one"
        )
    if audit_id is not None:
        print_line(f"source:  {as_line(request.sources)}")
    for line in lines_of_known(request.known_topics, plan):
        print_line(f"topics:  {line}")
    if catalog is not None:
        print_line(f"catalog: {catalog}, table {FINDINGS.name}")
