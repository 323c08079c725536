"""Audits within this process, their findings, and log dirs to be audited."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kidxlib.audit.finding import Verdict
from kidxlib.audit.partition import partition_audits
from kidxlib.audit.rows import AuditRows
from kidxlib.audit.summary import AuditSummary
from kidxlib.catalog.findings import FileFinding
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.indexing.source import parse_topics, source_at
from kidxlib.operations.audit.audit_summary import summarise_audit
from kidxlib.operations.audit.run_audit import AuditResults, run_audit
from kidxlib.operations.backend import open_without_catalog
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.terminal.audit import tell_audit_summary
from kidxlib.terminal.outcome import Outcome
from tests.support.logs import golden
from tests.support.plans import plan_of


def audited(
    source: Path,
    index_dir: Path | None = None,
    options: RecoverOptions | None = None,
    *,
    clean_shutdown: bool | None = None,
    tiering: bool = False,
    deep: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> AuditRows:
    """All rows of an audit, in this process; `meanwhile` is called once segments are listed."""
    with _found(
        source, index_dir, options, clean_shutdown=clean_shutdown, tiering=tiering, deep=deep, meanwhile=meanwhile
    ) as found:
        return found[0].all_rows()


def summarised(source: Path, index_dir: Path | None = None, *, tiering: bool = False) -> AuditSummary:
    with _found(source, index_dir, tiering=tiering) as (results, of_log_dirs):
        return summarise_audit(results, of_log_dirs, tiering=tiering)


def show_summary(summary: AuditSummary) -> None:
    outcome = Outcome()
    tell_audit_summary(outcome, "", summary, [])
    outcome.show(as_json=False)


@contextlib.contextmanager
def _found(
    source: Path,
    index_dir: Path | None,
    options: RecoverOptions | None = None,
    *,
    clean_shutdown: bool | None = None,
    tiering: bool = False,
    deep: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[tuple[AuditResults, list[str]]]:
    """The results of an audit, and what keeps a broker from starting with log dirs."""
    like = options or RecoverOptions()
    sources = [source_at(str(source), "it")]
    plan = plan_of(sources, index_dir, options=like)
    if meanwhile is not None:
        meanwhile()
    audits, stops = partition_audits(
        plan,
        sources,
        lambda _: OptionsOfTopic(like),
        clean_shutdown=clean_shutdown,
        tiering=tiering,
        topics=parse_topics(".*"),
    )
    with open_without_catalog(1) as backend:
        results = run_audit(backend.engine, plan.scan_tasks(), audits, sources, deep=deep)
        yield results, [failure for stop in stops.values() for failure in stop.failures]


def problems_of(files: list[FileFinding]) -> dict[str, tuple[str, str | None]]:
    """The verdict and reason of files that are not identical or whole, by name."""
    reported = (file for file in files if not Verdict(file.verdict).is_problem_free)
    return {Path(file.path).name: (file.verdict, file.reason) for file in reported}


def _json_of(command: str, *arguments: object, code: int) -> dict[str, Any]:
    """The JSON object of a command of `kidx` that ends with this exit code."""
    result = CliRunner().invoke(kidx, [command, "--json", *map(str, arguments)], standalone_mode=False)
    assert result.return_value == code, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


verified = partial(_json_of, "verify")
verified_tiered = partial(_json_of, "verify-tiered")
repaired = partial(_json_of, "repair-tiered")


def sound_copies(log_dir: Path, *names: str) -> Path:
    """Copy partitions of the sample into a log dir, and make all files that a broker keeps beside its logs."""
    for name in names:
        shutil.copytree(golden.SAMPLES / name, log_dir / name)
    built = CliRunner().invoke(kidx, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0, built.output
    return log_dir


def spoil(directory: Path) -> list[str]:
    """Break four files of `txn-mixed-0`, make an index sparser, and return the names of the four."""
    broken = [
        segment_files.segment_file(84, segment_files.TIME_INDEX_SUFFIX),
        segment_files.segment_file(84, segment_files.TRANSACTION_INDEX_SUFFIX),
        segment_files.segment_file(5891, segment_files.SNAPSHOT_SUFFIX),
        checkpoint_files.LEADER_EPOCH_CHECKPOINT,
    ]
    for name in broken[:3]:
        os.truncate(directory / name, (directory / name).stat().st_size - 12)
    (directory / broken[3]).write_text("0\n1\n1 5\n")
    os.truncate(directory / segment_files.segment_file(84, segment_files.OFFSET_INDEX_SUFFIX), 80)
    return broken
