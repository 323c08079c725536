"""The pictures that explain are those that the code draws."""

from __future__ import annotations

import pytest

from benchmarks.pictures import EXPLAINING, IMAGES, drawn


@pytest.mark.parametrize("name", EXPLAINING)
def test_picture_is_as_the_code_draws_it(name: str) -> None:
    committed = IMAGES / f"{name}.svg"
    assert drawn(EXPLAINING[name]) == committed.read_bytes(), (
        f"{committed.name} has changed; run: .venv/bin/python -m benchmarks.run pictures"
    )
