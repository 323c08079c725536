"""A time that is given says what is decided, never what may be removed: that goes by the machine's clock."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kidxlib.commands.compact import CompactCommand
from kidxlib.commands.retention import RetentionCommand
from kidxlib.errors import UsageError
from kidxlib.operations.retention.retention_request import ApplyRequest
from kidxlib.terminal.options import SETTINGS_FILE, MetadataOptions
from kidxlib.text.times import to_ms


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    """What looks like one."""
    (tmp_path / "segments" / "_delta_log").mkdir(parents=True)
    return str(tmp_path)


def _given(options: type[Any], **values: Any) -> Any:
    """Options of which only some were given."""
    without: dict[str, Any] = {"sources": (), "metadata": MetadataOptions()}
    nothing = {field.name: without.get(field.name) for field in fields(options)}
    return options(**{**nothing, "settings_file": SETTINGS_FILE, **values})


def test_compaction_removes_by_the_clock_what_it_finds_by_the_time_given(catalog: str) -> None:
    before = to_ms(datetime.now(UTC))
    asked = {"catalog": catalog, "orphans": True, "apply": True}
    files = _given(CompactCommand, now="2099-01-01T00:00Z", **asked).files
    assert files is not None and files.now_ms == to_ms(datetime(2099, 1, 1, tzinfo=UTC))
    assert before <= files.clock_ms <= to_ms(datetime.now(UTC))


def test_retention_applies_by_the_clock_alone(catalog: str) -> None:
    before = datetime.now(UTC)
    request = _given(RetentionCommand, catalog=catalog, apply=True, plan_id="x").resolved
    assert isinstance(request, ApplyRequest) and before <= request.context.now <= datetime.now(UTC)
    with pytest.raises(UsageError, match="--now: --apply goes by this machine's clock, and takes no such option"):
        _given(RetentionCommand, catalog=catalog, apply=True, plan_id="x", now="2026-01-01T00:00Z")


@pytest.mark.parametrize("asked", [{"now": "2026-01-01T00:00Z"}, {"what_if": True}], ids=lambda asked: min(asked))
def test_a_time_or_a_guess_makes_a_what_if(asked: dict[str, Any], catalog: str) -> None:
    """Which nothing is deleted by, here or by Kafka."""
    request = _given(RetentionCommand, catalog=catalog, **asked).resolved
    assert not isinstance(request, ApplyRequest) and request.options.what_if
