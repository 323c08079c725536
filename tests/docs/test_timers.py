"""The units of systemd and the CronJob in docs/operations.md: their commands as they stand, but for the places."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from yaml import safe_load

from kidxlib.cli.main import kidx
from tests.docs.pages import blocks
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import rows, run_here

_PAGE = "docs/operations.md"


def test_what_a_timer_starts_builds_and_audits(tmp_path: Path) -> None:
    """The unit builds the catalog, records an audit in it and writes metrics. The CronJob does the same again, from a
    volume that is mounted read-only.
    """
    (units,) = (block.text for block in blocks(_PAGE) if block.language == "ini")
    service, timer = re.split(r"^# /etc/systemd/system/.*\n", units, flags=re.MULTILINE)[1:]
    started = configparser.ConfigParser(interpolation=None)
    started.read_string(service)
    assert "[Timer]" in timer
    (job,) = (safe_load(block.text) for block in blocks(_PAGE) if block.text.startswith("apiVersion: batch/v1"))
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["volumeMounts"][0]["readOnly"] and {each["name"] for each in container["volumeMounts"]} == {
        each["name"] for each in pod["volumes"]
    }
    of_unit = [started["Service"][name].lstrip("-") for name in ("ExecStartPre", "ExecStart")]
    commands = [command.split()[1:] for command in (*of_unit, *container["args"][0].splitlines())]
    assert [command[0] for command in commands] == ["build", "verify", "build", "verify"]
    (tmp_path / "collected").mkdir()
    places = {
        "/var/lib/kafka/data": SAMPLES,
        "/var/lib/kidx": tmp_path,
        "/var/lib/node_exporter": tmp_path / "collected",
    }
    for number, command in enumerate(commands):
        words = [re.sub("|".join(places), lambda place: str(places[place[0]]), word) for word in command]
        ended = run_here(kidx, *words, "--now", f"2026-11-2{number}T00:00:00Z")
        assert ended.code == 0, ended.err
    assert rows(tmp_path / "catalog", "SELECT count(DISTINCT audit_id) AS audits FROM findings") == [{"audits": 2}]
    assert 'what="partitions_not_audited"} 0.0' in (tmp_path / "collected" / "kidx-audit.prom").read_text()
