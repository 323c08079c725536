"""Other processors, emulated: an Arm, and x86-64 processors without the instructions that this one may have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from hypothesis import given

from kidxlib.format.checksum_kernel import GOOGLE, ISAL
from kidxlib.recovery.options import RecoverOptions
from tests.conftest import Say
from tests.kafka.mutations import mutated_log
from tests.kidxlib.recovery.test_recover import assert_as_kafka, assert_equal, assert_same
from tests.model.recover import recover_reference
from tests.processors.processor import EMULATED, Processor
from tests.processors.questions import Question, Told, answered, question_about
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.segments import Segment, segments

GENERATED: Final = 1_000
MUTATED: Final = 1_000

_TAKES_LONG: Final = "compiles the loops under an emulator, for some minutes"


@pytest.fixture(autouse=True)
def _set_up() -> None:
    if not EMULATED.is_dir():
        pytest.skip("no emulator: ./setup.sh emulated")


@pytest.fixture
def questions(rng: random.Random, golden_segments: list[GoldenSegment]) -> list[Question]:
    """All golden segments first, then generated ones, then mutated ones; what is made of the latter two here is what
    the reference makes of them.
    """
    asked = [
        question_about(rng, segment.name, segment.log.read_bytes(), segment.base_offset, segment.options)[0]
        for segment in golden_segments
    ]
    logs = [segment.log for segment in golden_segments]
    for number, segment in enumerate([*_generated(rng), *_mutated(rng, golden_segments, logs)]):
        question, recovered = question_about(
            rng, f"segment {number}", segment.log, segment.base_offset, segment.options
        )
        reference = recover_reference(segment.log, segment.base_offset, segment.options)
        assert_equal(recovered, reference, segment.base_offset)
        asked.append(question)
    return asked


def _generated(rng: random.Random) -> list[Segment]:
    drawn: list[Segment] = []

    @hypothesis.seed(rng.getrandbits(32))
    @hypothesis.settings(max_examples=GENERATED, database=None, phases=[hypothesis.Phase.generate])
    @given(segments())
    def draw(segment: Segment) -> None:
        drawn.append(segment)

    draw()
    return drawn


def _mutated(rng: random.Random, golden_segments: Sequence[GoldenSegment], logs: Sequence[Path]) -> list[Segment]:
    return [
        Segment(
            log=mutated_log(rng, segment.log, logs).log,
            base_offset=segment.base_offset,
            options=RecoverOptions(interval_bytes=rng.choice((4096, 512, 0))),
        )
        for segment in rng.choices(golden_segments, k=MUTATED)
    ]


def _assert_as_here(
    told: Told, questions: Sequence[Question], golden_segments: Sequence[GoldenSegment]
) -> Counter[str]:
    """All answers are Kafka's files, or this processor's; what was compared. Where libzstd by itself reads a damaged
    batch on one of the two processors alone, records are not compared: Nehalem's has no loop for BMI2.
    """
    compared: Counter[str] = Counter()
    for answer, segment in zip(told.answers, golden_segments, strict=False):
        assert_as_kafka(answer.recovered, segment)
    for question, answer in zip(questions, told.answers, strict=True):
        here = answered(question)
        assert_same(answer.recovered, here.recovered)
        assert answer.lookups == here.lookups, question.name
        compared["segments"] += 1
        compared["lookups"] += sum(map(len, answer.lookups))
        if answer.frames != here.frames:
            compared["logs of which libzstd by itself reads other damaged data"] += 1
            continue
        assert answer.found == here.found, question.name
        assert (answer.records, answer.error) == (here.records, here.error), question.name
        compared["searches"] += len(answer.found)
        compared["records"] += len(answer.records)
        compared["logs with a record that cannot be read"] += answer.error is not None
    return compared


@pytest.mark.exhaustive(_TAKES_LONG)
def test_arm(questions: list[Question], golden_segments: list[GoldenSegment], tmp_path: Path, say: Say) -> None:
    """An Arm makes the same of logs. With either library's checksums: kidx has no loop of its own there."""
    for checksums in (ISAL, GOOGLE):
        told = Processor.emulated_arm().with_checksums(checksums).ask(questions, tmp_path)
        assert (told.machine, told.vector_words, told.checksums) == ("aarch64", 0, checksums)
        compared = _assert_as_here(told, questions, golden_segments)
        say(f"aarch64, {checksums}: {', '.join(f'{count:,} {what}' for what, count in compared.items())}")


@pytest.mark.exhaustive(_TAKES_LONG)
@pytest.mark.parametrize("kind", ["Nehalem", "max"])
def test_older_x86(
    kind: str, questions: list[Question], golden_segments: list[GoldenSegment], tmp_path: Path, say: Say
) -> None:
    """No instruction slips through that the processor lacks. The emulator ends a program that has one. Nehalem has no
    AVX, and does not multiply without carry; `max` has AVX2, and multiplies two words at once.
    """
    for checksums in (ISAL, GOOGLE):
        told = Processor.emulated_x86(kind).with_checksums(checksums).ask(questions, tmp_path)
        assert (told.vector_words, told.checksums) == (0, checksums)
        compared = _assert_as_here(told, questions, golden_segments)
        say(f"{kind}, {checksums}: {', '.join(f'{count:,} {what}' for what, count in compared.items())}")
