"""Every command and program on the pages runs as it stands there, and prints what they say."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Final

import pytest
from yaml import safe_load

from kidxlib.cli.main import kidx
from tests.docs.conftest import Workspace
from tests.docs.pages import PAGES, Block, blocks, runnable
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import rows, run_here

#: Why the blocks that are `slow` are for `--exhaustive`: what says as much each time.
_SLOW: Final = {
    "docs/object-stores.md": "starts Spark; tests/jobs/test_object_stores.py runs each job on objects",
    "docs/spark.md": "starts Spark twice; tests/kidxlib/spark and tests/kafka/test_spark_*.py read and stream by it",
    "docs/sql.md": "starts Spark's shell; tests/docs/test_sql_questions.py asks Spark each question of the page",
    "docs/start.md": "starts Spark for the README's job once more",
}
_BLOCKS: Final = [
    pytest.param(block, id=block.name, marks=[pytest.mark.exhaustive(_SLOW[page])] if block.is_slow else [])
    for page in PAGES
    for block in runnable(page)
]


def test_no_block_starts_the_tests() -> None:
    """Whoever pastes block after block of the README would start more than half an hour of them."""
    assert [block.name for page in PAGES for block in runnable(page) if "test.sh" in block.text] == []


@pytest.mark.parametrize("block", _BLOCKS)
def test_block_runs_as_it_stands(block: Block, workspace: Workspace) -> None:
    ended = workspace.run(block.page).get(block.name)
    if ended is None:
        pytest.skip("needs versitygw, which ./setup.sh kafka builds where there is Go")
    assert ended.returncode == block.exit_code, ended.stdout + ended.stderr
    printed = (ended.stdout + ended.stderr).splitlines()
    for line in block.output:
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        assert any(re.fullmatch(pattern, each.rstrip()) for each in printed), f"not printed: {line}\n{ended.stdout}"


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
