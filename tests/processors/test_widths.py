"""All widths of the loop that computes checksums, on this processor: instructions are hidden from numba and kidx."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.checksum_kernel import FOLDING, GOOGLE, ISAL, VECTOR_WORDS
from tests.conftest import Say
from tests.kidxlib.recovery.test_recover import assert_as_kafka, assert_same
from tests.processors.processor import Processor
from tests.processors.questions import Question, answered
from tests.support.logs.golden import GoldenSegment

#: Words that are multiplied at once, and what computes checksums. Without such instructions it is a library.
WAYS: Final = ((8, FOLDING), (4, FOLDING), (0, ISAL), (0, GOOGLE))


@pytest.mark.parametrize(("words", "checksums"), WAYS)
def test_checksums_and_what_a_scan_finds(
    words: int, checksums: str, rng: random.Random, say: Say, tmp_path: Path, golden_segments: list[GoldenSegment]
) -> None:
    """Random bytes of many lengths at many alignments, against Google's library and zlib; all golden segments, the
    sample's among them, against Kafka's files and against this processor's facts.
    """
    if words > VECTOR_WORDS:
        pytest.skip(f"this processor multiplies {VECTOR_WORDS} words at once")
    processor = Processor.with_vectors_of(words).with_checksums(checksums)
    compared = processor.run("from tests.processors.checksums import compare; compare()", str(rng.getrandbits(32)))
    questions = [
        Question(
            name=segment.name,
            log=segment.log.read_bytes(),
            base_offset=segment.base_offset,
            options=segment.options,
            is_read=False,
        )
        for segment in golden_segments
    ]
    told = processor.ask(questions, tmp_path)
    assert (told.vector_words, told.checksums) == (words, checksums)
    for question, answer, segment in zip(questions, told.answers, golden_segments, strict=True):
        assert_as_kafka(answer.recovered, segment)
        assert_same(answer.recovered, answered(question).recovered)
    say(f"{compared.split()[-1]} checksums, {len(questions)} segments")
