"""How long something was read."""

from __future__ import annotations

from kidxlib.terminal.phase import Span


def test_the_time_of_reading_is_from_the_first_that_began_to_the_last_that_ended() -> None:
    assert Span().seconds == 0.0
    assert (Span() | Span(5.0, 6.0) | Span(3.0, 4.0)).seconds == 3.0
