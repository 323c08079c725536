"""Times as people write them: ISO 8601 with a zone, or milliseconds since the epoch; and spans of time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kidxlib.errors import UsageError

#: File systems have nanoseconds, Kafka has milliseconds.
NS_PER_MS: Final = 1_000_000
#: Earlier times may be in another unit than ms, as some producers use the wrong one (KAFKA-6482).
YEAR_2000_MS: Final = 946_684_800_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def parse_time(text: str) -> datetime:
    """Parse a time: ISO 8601 with a zone, or milliseconds since the epoch."""
    if re.fullmatch(r"-?[0-9]+", text):
        try:
            return _EPOCH + timedelta(milliseconds=int(text))
        except (OverflowError, ValueError) as error:  # int() refuses more than 4300 digits with a ValueError
            raise UsageError(
                f"{text}: milliseconds since the epoch, expected a time within the years 1 to 9999"
            ) from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a time; expected ISO 8601 with a zone (2026-11-20T10:00Z) or milliseconds since the epoch"
        ) from error
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no time zone; add Z for UTC or an offset such as +01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise UsageError(f"{text!r} is a time outside the years 1 to 9999 in UTC; expected one within them") from error


def parse_milliseconds(text: str) -> int:
    """Parse a time to ms since the epoch, rounded up. A number is returned unchanged, even if no calendar has its
    year.
    """
    if re.fullmatch(r"-?[0-9]{1,20}", text):
        if not -(2**63) <= int(text) < 2**63:
            raise UsageError(f"{text}: milliseconds since the epoch, expected within 64 bits")
        return int(text)
    return -((_EPOCH - parse_time(text)) // timedelta(milliseconds=1))


def milliseconds_of(option: str, text: str) -> int:
    """Parse the time that an option gives to ms since the epoch (`parse_milliseconds`); errors name the option."""
    try:
        return parse_milliseconds(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error


def show_time(milliseconds_: int) -> str:
    """A time in ms since the epoch as ISO 8601 in UTC; the number if no calendar has it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds_)
    except OverflowError:
        return f"{milliseconds_} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_ms(milliseconds_: int) -> str:
    """A time in ms since the epoch, and after it the same as ISO 8601 in UTC, if a calendar has it."""
    shown = show_time(milliseconds_)
    return shown if shown.endswith("ms") else f"{milliseconds_} ({shown})"


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a whole number and a unit, such as 60s."""
    match = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|d)", text)
    if match is None:
        raise UsageError(f"{text!r} is not a duration; expected a whole number with ms, s, m, h or d, such as 60s")
    try:
        return int(match[1]) * _UNITS[match[2]]
    except OverflowError as error:
        raise UsageError(f"{text}: too long a duration; expected 999999999 days at most") from error


@dataclass(frozen=True, slots=True)
class Span:
    """The time of reading, in seconds since the epoch. If nothing was read, the end is before the beginning."""

    begin: float = float("inf")
    end: float = float("-inf")

    def __or__(self, other: Span) -> Span:
        return Span(min(self.begin, other.begin), max(self.end, other.end))

    @property
    def seconds(self) -> float:
        """The length of the span of time, in seconds."""
        return max(0.0, self.end - self.begin)
