"""Which release a text names, and which one a node that registers is of."""

from __future__ import annotations

import pytest

from kidxlib.format.kafka_release import NEWEST, OLDEST, KafkaRelease, release_of_level


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("4.4", (4, 4)),
        ("4.3.1", (4, 3)),
        ("3.10.0", (3, 10)),
        ("4", None),
        ("4.4.0.1", None),
        ("v4.4", None),
        ("", None),
    ],
)
def test_texts(text: str, release: tuple[int, int] | None) -> None:
    assert KafkaRelease.parse(text) == release


def test_they_are_in_order() -> None:
    assert OLDEST < KafkaRelease(3, 10) < KafkaRelease(4, 0) < NEWEST
    assert f"{NEWEST}" == "4.4"


def test_levels() -> None:
    """A release defines the first level of the next one before that is out: 4.3 has 31, and not 32."""
    assert [release_of_level(level) for level in (1, 21, 22, 30, 31, 32, 99)] == [
        *(OLDEST, OLDEST, (4, 0), (4, 3), (4, 3), NEWEST, NEWEST)
    ]
