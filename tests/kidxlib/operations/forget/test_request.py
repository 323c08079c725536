"""A name that no source can have is told, before a catalog is asked for it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(UsageError, match=r"^\\xff: found bytes that are not UTF-8"):
        CliRunner().invoke(kidx, ["forget-source", "\udcff"], standalone_mode=False, catch_exceptions=False)
