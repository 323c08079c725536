"""Damage accepted and a source forgotten by jobs: the same as by kidx, with and without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from jobs.common.spark import session
from kidxlib.catalog.tables import TABLES
from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from tests.docs.log_dirs import put
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import (
    Ended,
    accept_here,
    forget_here,
    kidx_build_here,
    rows,
    run_here,
    through_a_metastore,
)

_NOW: Final = ("--now", "2026-11-24T10:00:00Z")
_REASON: Final = ("--reason", "known", "--by", "ann", "--apply")


def _kidx_accept_here(*arguments: str | Path) -> Ended:
    return run_here(kidx, "accept", *arguments)


def _kidx_forget_here(*arguments: str | Path) -> Ended:
    return run_here(kidx, "forget-source", *arguments)


def _built(directory: Path) -> Path:
    """A catalog of two sources, each with a log that is cut off."""
    for source in ("a", "b"):
        put(directory / source / "orders-0", 0, [Batch(), Batch()])
        log = directory / source / "orders-0" / segment_file(0, LOG_SUFFIX)
        log.write_bytes(log.read_bytes()[:-10])
    sources = ("--source", f"a={directory}/a", "--source", f"b={directory}/b")
    ended = kidx_build_here(*sources, "--index-dir", directory / "index", "--catalog", directory / "catalog")
    assert ended.code == 3, ended.err
    return directory / "catalog"


def _lived(
    catalog: Path, accept: Callable[..., Ended], forget: Callable[..., Ended], *settings: str | Path
) -> list[Any]:
    """What is said and recorded as damage is accepted, accepted again, taken back in part, and a source goes."""
    of_catalog = ("--catalog", catalog, "--json", *settings)
    told: list[Any] = []
    for ended in (
        accept(*of_catalog, *_NOW),
        accept(*of_catalog, *_NOW, "--topics", "orders", *_REASON),
        accept(*of_catalog, *_NOW, "--topics", "orders", *_REASON),
        accept(*of_catalog, *_NOW, "--source", "b", "--withdraw", "--apply"),
    ):
        assert ended.code == 0, ended.err
        told += [ended.json, rows(catalog, "SELECT * FROM accepted ORDER BY source")]
    for apply in ((), ("--apply",)):
        ended = forget("a", *of_catalog, *apply)
        assert ended.code == 0, ended.err
        told.append(ended.json)
    told += [rows(catalog, f"SELECT count(*) AS rows FROM {table.name}") for table in TABLES]
    return told


def test_the_jobs_do_what_kidx_does_and_start_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", refused)
    assert _told(tmp_path / "job", accept_here, forget_here) == _told(tmp_path / "kidx")


@pytest.mark.exhaustive("Spark commits a dozen times, two seconds each; tests/jobs/build has builds that it commits")
def test_spark_commits_the_same(tmp_path: Path) -> None:
    accept, forget = through_a_metastore(accept_here), through_a_metastore(forget_here)
    assert _told(tmp_path / "spark", accept, forget) == _told(tmp_path / "kidx")


def _told(
    directory: Path,
    accept: Callable[..., Ended] = _kidx_accept_here,
    forget: Callable[..., Ended] = _kidx_forget_here,
    *settings: str | Path,
) -> list[Any]:
    """It, for a catalog of its own; without what its files are called and when they were written."""
    told = _lived(_built(directory), accept, forget, *settings)
    return [_plain(each, str(directory)) for each in told]


def _plain(value: Any, directory: str) -> Any:
    if isinstance(value, list):
        return [_plain(each, directory) for each in value]
    if isinstance(value, dict):
        own = ("file_mtime_ns", "file_inode")
        return {name: _plain(each, directory) for name, each in value.items() if name not in own}
    return value.replace(directory, "…") if isinstance(value, str) else value
