"""What a repair of tiered storage refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from tests.docs.pages import PROJECT

_SAMPLE: Final = PROJECT / "samples" / "tiered"
_HERE: Final = (str(_SAMPLE),)
_METADATA: Final = ("--tiered-metadata", str(_SAMPLE / "log-dir"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*_HERE, *_METADATA), "no --index-dir: name a directory"),
        ((*_HERE, "--index-dir", "x"), "no --tiered-metadata"),
        ((*_HERE, *_METADATA, "--settings", "x"), "--settings: only with --catalog"),
        ((*_HERE, *_METADATA, "--index-dir", "x", "--catalog", "no such"), "no catalog"),
        (("no such", *_METADATA, "--index-dir", "x"), "no such: no such directory"),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(kidx, ["repair-tiered", *options], standalone_mode=False, catch_exceptions=False)
    assert said in str(refused.value)


@pytest.mark.parametrize("inside", ["", "kafka-tiered-storage", "kafka-tiered-storage/x", "log-dir/x"])
def test_the_mirror_is_a_place_of_its_own(inside: str) -> None:
    options = [*_HERE, *_METADATA, "--index-dir", str(_SAMPLE / inside)]
    with pytest.raises(UsageError):
        CliRunner().invoke(kidx, ["repair-tiered", *options], standalone_mode=False, catch_exceptions=False)
