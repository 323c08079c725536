"""The alerts of docs/operations.md, evaluated on the metrics files of runs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import blocks

_DAMAGED: Final = re.compile(r'expr: max by \(source, status\) \((\w+)\{status!~"([^"]+)"\}\) > 0$', re.MULTILINE)

#: The labels of an alert that fires: source and status.
Firing = set[tuple[str, str]]


def rules() -> str:
    (text,) = (block.text for block in blocks("docs/operations.md") if block.text.startswith("groups:"))
    return text


def damage_told(file: Path) -> Firing:
    """The sources and statuses for which `KidxDamaged` fires with the values of a file.

    This evaluates the one expression of the page by hand, and checks the expression's form: Prometheus' own evaluation,
    in `by_promtool`, takes a program that not every machine has.
    """
    match = _DAMAGED.search(rules())
    assert match, "the expression of KidxDamaged has another form: adapt this"
    metric, harmless = match.groups()
    return {
        (sample.labels["source"], sample.labels["status"])
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if sample.name == metric and not re.fullmatch(harmless, sample.labels["status"]) and sample.value > 0
    }


def by_promtool(promtool: str, directory: Path, files: Sequence[Path], expected: Sequence[Firing]) -> None:
    """Let promtool evaluate `KidxDamaged` on the values of a file at one minute, of the next file at the next minute
    and so on, and compare what fires.
    """
    (directory / "rules.yml").write_text(rules())
    series: dict[str, list[str]] = {}
    for minute, file in enumerate(files):
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
                series.setdefault(f"{sample.name}{{{labels}}}", ["_"] * minute).append(f"{sample.value:g}")
        for values in series.values():
            values += ["stale"] * (minute + 1 - len(values))
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "alert_rule_test": [
                    {
                        "eval_time": f"{minute}m",
                        "alertname": "KidxDamaged",
                        "exp_alerts": [
                            {"exp_labels": {"source": source, "status": status}} for source, status in sorted(firing)
                        ],
                    }
                    for minute, firing in enumerate(expected)
                ],
            }
        ],
    }
    (directory / "test.yml").write_text(json.dumps(test))  # JSON is YAML
    ended = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=directory, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
