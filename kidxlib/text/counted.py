"""How many there are, in words, as messages say it."""

from __future__ import annotations


def counted(count: int, one: str, more: str | None = None) -> str:
    """`1 segment`, `2,000 segments`.

    Args:
        one, more: the noun for one, and for any other number where that is not `one` with an s.
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"
