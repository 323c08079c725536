"""Numbers of bytes as people write them."""

from __future__ import annotations

import click
import pytest

from kidxlib.terminal.options.byte_size import ByteSize


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1500", 1500),
        ("2kB", 2000),
        ("2 KiB", 2048),
        ("500MB", 500_000_000),
        ("3gib", 3 * 2**30),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5GB", "5 bytes", "GB", "9000000PB", "٣"])
def test_others(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a number of bytes below 2⁶³, such as"):
        ByteSize().convert(text, None, None)
