"""The page's file: what is in it, and how it is put in place."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.operations.report.document import Report, page_of, write_page

_NAME = "</script><!--\udcff$policy"


def _report() -> Report:
    return Report(
        head={"catalog": f"/{_NAME}", "attention": [], "sql": {}, "made_at_ms": 0},
        sections={"overview": {}},
        retention_partitions={f"topic-{number}": [{"partition": 0}] * 150 for number in range(3)},
        timelines={(_NAME, 7): [{"source": "one", "segments": [1]}]},
    )


def _parts(page: str) -> dict[str, object]:
    found = re.findall(r'<script type="application/gzip" id="part-([^"]+)">([^<]*)</script>', page)
    return {name: json.loads(gzip.decompress(base64.b64decode(packed))) for name, packed in found}


def test_parts_hold_what_the_report_does() -> None:
    parts = _parts(page_of(_report()))
    assert sorted(parts) == ["main", "retention-0", "retention-1", "retention-2", "timeline-0"]
    main = parts["main"]
    assert isinstance(main, dict)
    assert main["retention_part"] == {"topic-0": 0, "topic-1": 1, "topic-2": 2}
    assert main["timeline_part"] == {f"{_NAME}-7": 0}
    assert parts["timeline-0"] == {f"{_NAME}-7": [{"source": "one", "segments": [1]}]}


def test_policy_names_each_script_and_style_and_nothing_else() -> None:
    page = page_of(_report())
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = set(re.findall("'sha256-([^']+)'", policy[1]))
    found = {
        *re.findall("<script>(.*?)</script>", page, re.DOTALL),
        *re.findall("<style>(.*?)</style>", page, re.DOTALL),
    }
    assert allowed == {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found}
    assert policy[1].startswith("default-src 'none';") and "unsafe" not in policy[1]


def test_the_library_that_draws_is_as_it_was_published() -> None:
    place = files("kidxlib.operations.report") / "page" / "echarts"
    sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", (place / "README.md").read_text(), re.MULTILINE)
    assert {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for _, name in sums} == {
        name: digest for digest, name in sums
    }
    assert {name for _, name in sums} == {path.name for path in place.iterdir()} - {"README.md"}


def test_a_page_that_is_there_is_replaced_or_stays(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert write_page(_report(), page) == page.stat().st_size
    before = page.read_bytes()
    assert write_page(_report(), page) == len(before) and page.read_bytes() == before, "the same report, the same bytes"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UsageError, match=r"--output .*no-such/report.html: cannot be written: No such file"):
        write_page(_report(), tmp_path / "no-such" / "report.html")
