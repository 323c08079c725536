"""An audit of tiered storage, from the metadata to what is shown of it. Nothing is written to the bucket."""

from __future__ import annotations

from kidxlib.operations.audit.tiered.find import TieredAudit, of_log_dirs, plan_audit, read_metadata
from kidxlib.operations.audit.tiered.numbers.numbers import numbers_of
from kidxlib.operations.audit.tiered.numbers.stalled import stalled
from kidxlib.operations.audit.tiered.record import record_segments
from kidxlib.operations.audit.tiered.remote_metadata import MetadataReader
from kidxlib.operations.audit.tiered.report import TieredFound, result_of, show, show_json
from kidxlib.operations.audit.tiered.request import TieredRequest
from kidxlib.operations.backend import OpenBackend
from kidxlib.run.result import RunResult
from kidxlib.storage.store.requests import requests_made
from kidxlib.terminal.console import warn_of_first
from kidxlib.terminal.progress import begin_phase


def run_tiered(request: TieredRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Audit a bucket, and show what is found.

    Raises:
        UsageError: there is no metadata, or nothing to audit; or a place cannot be read.
        RemoteLogMetadataError: the metadata is not what a broker writes.
        CatalogError: the catalog cannot be read or written.
        OSError: an object cannot be read, or a directory not be listed.
        Interrupted: the run is; nothing is reported.
    """
    warn_of_first(request.known_topics.warnings)
    reader = MetadataReader(request.places, request.topics)
    metadata = read_metadata(reader, request)
    plan = plan_audit(request, metadata)
    with open_backend() as backend:
        audit = TieredAudit(backend.engine, plan, reader)
        if request.recording is not None:
            backend.catalog.make_tables()
        findings, counts = audit.find(metadata)
        findings += of_log_dirs(request, reader)
        begin_phase("counting")
        numbers = numbers_of(request, plan, metadata, counts)
        findings += stalled(numbers, plan.topics, request.stuck_ms)
        if request.recording is not None:
            begin_phase("recording in the catalog")
            record_segments(backend.catalog.tables, request.recording, audit.listed, findings, plan.as_of)
        requests = requests_made() - request.asked_before + backend.engine.requests()
        found = TieredFound.of(findings, counts, numbers, metadata, plan.as_of, requests)
        (show_json if as_json else show)(request, found)
    return result_of(request, found)
