"""Which words are ./spark-submit.sh's own, which a job's, and which spark-submit's."""

from __future__ import annotations

import pytest

from jobs.common.submit.call import Call, read_call
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
