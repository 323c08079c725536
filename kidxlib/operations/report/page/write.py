"""Writes a report as one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.operations.report.document import Report
from kidxlib.terminal.console import printable

_PACKAGE_FILES: Final = files(__package__)
#: In the order of the page: scripts that others use come first.
_SCRIPTS: Final = (
    *("data", "format", "dom", "table", "chart", "glance", "fleet", "overview", "health", "timeline_chart", "timeline"),
    *("retention", "shape", "growth", "replicas", "builds", "main"),
)
#: Partitions whose details are unpacked together, once somebody looks at one of them.
_PARTITIONS_A_PART: Final = 200
_GZIP_LEVEL: Final = 6


def write_page(report: Report, output: Path) -> int:
    """Write the page, whole or not at all. Returns its bytes."""
    page = page_of(report).encode()
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        try:
            part.write_bytes(page)
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--output {output}: cannot be written: {error.strerror}; name another place") from error
    return len(page)


def page_of(report: Report) -> str:
    """The page as text. Names come into it only as data: the title is escaped, all else is packed."""
    library = _read_asset("echarts/echarts.min.js")
    scripts = '(() => {\n"use strict";\n' + "\n".join(_read_asset(f"scripts/{name}.js") for name in _SCRIPTS) + "})();"
    styles = _read_asset("report.css")
    parts = "\n".join(
        f'<script type="application/gzip" id="part-{name}">{_gzip_as_base64(part)}</script>'
        for name, part in _report_parts(report)
    )
    return Template(_read_asset("page.html")).substitute(
        policy=_content_security_policy([library, scripts], styles),
        title=html.escape(printable(report.head["catalog"])),
        styles=styles,
        parts=parts,
        library=library,
        scripts=scripts,
    )


def _report_parts(report: Report) -> Iterator[tuple[str, Any]]:
    """Parts that are unpacked as a whole, by name. The first tells in which part the details of each topic and
    partition are.
    """
    retention = list(_divide_details(report.retention_partitions))
    timelines = list(
        _divide_details({f"{topic}-{number}": lanes for (topic, number), lanes in report.timelines.items()})
    )
    where = {
        "retention_part": {topic: number for number, part in enumerate(retention) for topic in part},
        "timeline_part": {name: number for number, part in enumerate(timelines) for name in part},
    }
    yield "main", {**report.head, **report.sections, **where}
    yield from ((f"retention-{number}", part) for number, part in enumerate(retention))
    yield from ((f"timeline-{number}", part) for number, part in enumerate(timelines))


def _divide_details(details: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Sequence[Any]]]:
    part: dict[str, Sequence[Any]] = {}
    size = 0
    for name, of_name in details.items():
        if part and size + len(of_name) > _PARTITIONS_A_PART:
            yield part
            part, size = {}, 0
        part[name] = of_name
        size += len(of_name)
    if part:
        yield part


def _gzip_as_base64(part: Any) -> str:
    text = json.dumps(part, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), _GZIP_LEVEL, mtime=0)).decode()


def _content_security_policy(scripts: Iterable[str], styles: str) -> str:
    """A content security policy under which nothing runs or loads that is not in the file, and nothing is sent."""
    allowed = " ".join(_csp_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_csp_digest(styles)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _csp_digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read_asset(name: str) -> str:
    return _PACKAGE_FILES.joinpath(name).read_text(encoding="utf-8")
