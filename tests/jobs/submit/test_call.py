"""Which words are ./spark-submit.sh's own, which a job's, and which spark-submit's."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import jobs
from jobs.common.submit.call import Call, ensure_known_job, job_names, read_call, usage
from kidxlib.errors import UsageError


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ([], Call(None)),
        (["--dry-run"], Call(None, is_dry_run=True)),
        (["seek"], Call("seek")),
        ([""], Call("")),
        (["--help", "seek"], Call("--help", ("seek",))),
        (["--dry-run", "--in-image", "/opt/kidx/", "seek"], Call("seek", is_dry_run=True, image="/opt/kidx")),
        (["--in-image", "/a", "--in-image", "/b", "seek"], Call("seek", image="/b")),
        (["seek", "--dry-run", "--in-image"], Call("seek", ("--dry-run", "--in-image"))),
    ],
)
def test_own_options_end_at_the_job(words: list[str], call: Call) -> None:
    assert vars(read_call(words)) == vars(call)


@pytest.mark.parametrize(
    ("words", "found"),
    [(["opt", "seek"], "opt"), (["--dry-run"], "--dry-run"), (["", "seek"], "nothing"), ([], "nothing")],
)
def test_a_directory_in_an_image_begins_at_its_root(words: list[str], found: str) -> None:
    with pytest.raises(
        UsageError, match=f"^--in-image: {found}; expected the directory's path in the image, from / on$"
    ):
        read_call(["--in-image", *words])


@pytest.mark.parametrize(
    ("words", "job_options", "spark_options"),
    [
        ((), (), ()),
        (("a", "b"), ("a", "b"), ()),
        (("a", "--", "b"), ("a",), ("b",)),
        (("--",), (), ()),
        (("--", "a", "--", "b"), (), ("a", "--", "b")),
    ],
)
def test_the_first_two_dashes_part_the_options(
    words: tuple[str, ...], job_options: tuple[str, ...], spark_options: tuple[str, ...]
) -> None:
    call = Call("seek", words)
    assert (call.job_options, call.spark_options) == (job_options, spark_options)


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
