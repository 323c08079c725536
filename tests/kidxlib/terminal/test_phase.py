"""How long something was read."""

from __future__ import annotations

from kidxlib.terminal.phase import Done, Phase, Span


def test_the_time_of_reading_is_from_the_first_that_began_to_the_last_that_ended() -> None:
    assert Span().seconds == 0.0
    assert (Span() | Span(5.0, 6.0) | Span(3.0, 4.0)).seconds == 3.0


def test_what_is_left_goes_by_bytes_and_else_by_segments() -> None:
    """A HEAD takes as long for a small object as for a large one."""
    done = Done(segments=30, log_bytes=1_000, seconds=3.0)
    by_bytes = Phase("reading", 0.0, lambda: done, segments=40, log_bytes=4_000, after="")
    by_segments = Phase("asking", 0.0, lambda: done, segments=40, log_bytes=0, after="")
    assert (by_bytes.share(done), by_bytes.seconds_left(done), by_bytes.speed(done)) == (0.25, 9.0, "333 bytes/s")
    assert (by_segments.share(done), by_segments.seconds_left(done)) == (0.75, 1.0)
    assert (by_segments.amount(done), by_segments.speed(done)) == ("30 of 40 segments", "10 segments/s")
    unknown = Phase("reading", 0.0, lambda: done, segments=0, log_bytes=0, after="")
    assert (unknown.share(done), unknown.seconds_left(done)) == (0.0, None)
