"""What ./spark-submit.sh says of the jobs."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import jobs
from jobs.common.submit.project import ensure_known_job, job_names, usage
from kidxlib.errors import UsageError

_NAMES = [module.name for module in pkgutil.iter_modules(jobs.__path__) if not module.ispkg]


def test_each_module_is_a_job() -> None:
    assert job_names() == sorted(_NAMES) and "seek" in _NAMES


@pytest.mark.parametrize("name", _NAMES)
def test_help_has_the_first_line_of_each_docstring(name: str) -> None:
    docstring = importlib.import_module(f"jobs.{name}").__doc__
    assert docstring is not None
    assert f"\n  {name:15} {docstring.splitlines()[0]}\n" in usage()


def test_help_says_how_it_is_called() -> None:
    lines = usage().splitlines()
    assert lines[0].startswith("Usage: ./spark-submit.sh [--dry-run] [--in-image DIR] JOB ")
    assert any(line.startswith("  package         make what") for line in lines)
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("sekk", "did you mean seek? "), ("packge", "did you mean package? "), ("zzzz", ""), ("", ""), ("__init__", "")],
)
def test_a_misspelt_job_gets_a_suggestion(name: str, nearest: str) -> None:
    for known in _NAMES:
        ensure_known_job(known)
    with pytest.raises(UsageError) as refused:
        ensure_known_job(name)
    assert str(refused.value) == f"no such job: {name}; {nearest}there are: {' '.join(sorted(_NAMES))} package"


@pytest.mark.parametrize("name", ["common", "../jobs/seek", "seek.py", "/etc/passwd"])
def test_what_is_no_module_of_jobs_is_no_job(name: str) -> None:
    with pytest.raises(UsageError, match=r"^no such job: "):
        ensure_known_job(name)
