"""Questions as columns: a time in a file means what it means in an option, or nothing."""

from __future__ import annotations

import random
from typing import Final

import pyarrow as pa

from kidxlib.operations.seek.question_columns import WrongRow, to_questions
from kidxlib.operations.seek.row_check import why_wrong
from kidxlib.text.times import parse_milliseconds
from tests.conftest import Say

_LONG_MAX: Final = 2**63 - 1


def _random_time(rng: random.Random) -> str:
    """A time as somebody may write it, and now and then one that is none."""
    year = rng.choice([0, 1, 1969, 1970, 2026, 9999, rng.randrange(10_000)])
    date = f"{year:04d}-{rng.randrange(1, 13):02d}-{rng.choice([1, 28, 29, 30, 31]):02d}"
    clock = f"{rng.choice([0, 23, 24, rng.randrange(24)]):02d}:{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
    if rng.random() < 0.7:
        clock += f":{rng.choice([0, 59, 60, rng.randrange(60)]):02d}"
        if rng.random() < 0.7:
            clock += "." + "".join(rng.choices("0019", k=rng.randint(1, 7)))
    zone = rng.choice(
        [
            "Z",
            "Z",
            "",
            "z",
            "+01",
            "+0100",
            f"{rng.choice('+-')}{rng.randrange(25):02d}:{rng.choice([0, 30, 59, 60]):02d}",
        ]
    )
    text = f"{date}{rng.choice('TTTT t')}{clock}{zone}"
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("09-+: TZx\t\n") + text[at + rng.randrange(2) :]
    return text


def test_times_in_a_file_mean_what_they_mean_in_an_option(rng: random.Random, say: Say) -> None:
    """A time is what `parse_milliseconds` makes of it, or none; never another one."""
    always = {
        "0": 0, "-1": -1, "1795000000000": 1_795_000_000_000, "-9223372036854775808": -(2**63),
        "9223372036854775807": _LONG_MAX,
        "2026-11-20T10:00Z": 1_795_168_800_000, "2026-11-20T10:00:00Z": 1_795_168_800_000,
        "2026-11-20 11:00+01:00": 1_795_168_800_000, "2026-11-20T10:00:00.000001Z": 1_795_168_800_001,
        "1969-12-31T23:59:59.9991Z": 0, "1969-12-31T23:59:59.999Z": -1, "0001-01-01T00:00Z": -62_135_596_800_000,
        "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    }  # fmt: skip
    never = [
        "",
        "x",
        "+5",
        "5.0",
        "1e3",
        "9223372036854775808",
        "2026-11-20",
        "2026-11-20T10:00",
        "10:00Z",
        "0000-01-01T00:00Z",
    ]
    texts = [*always, *never, *(str(rng.randrange(-(2**64), 2**64)) for _ in range(100))]
    texts += [_random_time(rng) for _ in range(10_000)]
    assert {text: _target(text) for text in always} == always
    right = [text for text in texts if why_wrong({"topic": "t", "partition": "0", "timestamp": text}) is None]
    rows = to_questions(_times(right))  # all at once, odd ones among others
    assert isinstance(rows, pa.RecordBatch)
    assert rows.column("target").to_pylist() == [parse_milliseconds(text.strip(" ")) for text in right]
    assert len(right) > 500
    wrong = sorted({*texts} - {*right} - {*never})
    for text in [*never, *rng.sample(wrong, 1000)]:
        assert _target(text) is None, text
    say(f"{len(right)} of {len(texts)} times are taken, as the same moment")


def _times(texts: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"topic": ["t"] * len(texts), "partition": ["0"] * len(texts), "timestamp": texts}
    )


def _target(text: str) -> int | None:
    """What a question of this time alone asks; None where it is none."""
    found = to_questions(_times([text]))
    if isinstance(found, WrongRow):
        assert found.number == 0 and (not text or f"timestamp {text.strip(' ')}, expected ISO 8601" in found.why), found
        return None
    [row] = found.to_pylist()
    assert row["by_time"] == 1
    return int(row["target"])
