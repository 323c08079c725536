"""What the library makes of logs, asked of a process that may have another processor, and of this one."""

from __future__ import annotations

import pickle
import platform
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from kidxlib.format import layouts
from kidxlib.format.checksum_kernel import CHOSEN, VECTOR_WORDS
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import WholeLog

#: What a search says: an answer, or the words of a refusal.
Said: TypeAlias = object

#: How many entries of an index are asked for, with what is next to them.
_ENTRIES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A log to recover, and to search and read with the indexes that recovery gives.

    Attributes:
        offsets: to look up and to search for.
        timestamps: the same.
        is_read: whether records are read and searched for, too.
    """

    name: str
    log: bytes
    base_offset: int
    options: RecoverOptions
    offsets: tuple[int, ...] = ()
    timestamps: tuple[int, ...] = ()
    is_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    Attributes:
        lookups: the entries that the indexes lead to.
        found: the batches and records that searches lead to.
        records: as rows, up to the first that cannot be read.
        error: why that one cannot be read.
        frames: what libzstd by itself makes of each batch. It has other loops for other processors, which read
            different damaged data, or refuse it.
    """

    recovered: RecoveredSegment
    lookups: tuple[list[tuple[int, ...]], ...] = ()
    found: tuple[Said, ...] = ()
    records: tuple[Said, ...] = ()
    error: str | None = None
    frames: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers, and what gave them.

    Attributes:
        machine: the kind of processor, as the system names it.
        vector_words: how many words the processor multiplies at once, as kidx found it.
        checksums: the implementation that kidx has taken.
    """

    machine: str
    vector_words: int
    checksums: str
    answers: tuple[Answer, ...]


def question_about(
    rng: random.Random, name: str, log: bytes, base_offset: int, options: RecoverOptions
) -> tuple[Question, RecoveredSegment]:
    """A question with offsets and timestamps around those that the indexes have, and what recovery gives here."""
    recovered = _recover(log, base_offset, options)
    entries = np.frombuffer(recovered.offset_index, layouts.OFFSET_INDEX_ENTRY)["relative_offset"].tolist()
    times = np.frombuffer(recovered.time_index, layouts.TIME_INDEX_ENTRY)["timestamp"].tolist()
    offsets = [0, *rng.sample(entries, min(len(entries), _ENTRIES)), rng.randrange(-10, 3000)]
    timestamps = [-1, 0, *rng.sample(times, min(len(times), _ENTRIES))]
    question = Question(
        name=name,
        log=log,
        base_offset=base_offset,
        options=options,
        offsets=tuple(_as_long(base_offset + offset + step) for offset in offsets for step in (-1, 0, 1)),
        timestamps=tuple(_as_long(timestamp + step) for timestamp in timestamps for step in (-1, 0, 1)),
    )
    return question, recovered


def _as_long(number: int) -> int:
    return min(max(number, -(2**63)), 2**63 - 1)


def _recover(log: bytes, base_offset: int, options: RecoverOptions) -> RecoveredSegment:
    return recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, options)


def answered(question: Question) -> Answer:
    recovered = _recover(question.log, question.base_offset, question.options)
    if not question.is_read:
        return Answer(recovered=recovered)
    from tests.processors.searches import frames, lookups, records, searches  # whose loops a scan needs not

    rows, error = records(question.log)
    return Answer(
        recovered=recovered,
        lookups=lookups(question, recovered),
        found=searches(question, recovered),
        records=rows,
        error=error,
        frames=frames(question.log),
    )


def tell() -> None:
    """What another process calls: it answers the questions in the file that is named first, and writes the second."""
    questions, told = map(Path, sys.argv[1:])
    answers = tuple(answered(question) for question in pickle.loads(questions.read_bytes()))
    told.write_bytes(
        pickle.dumps(Told(machine=platform.machine(), vector_words=VECTOR_WORDS, checksums=CHOSEN, answers=answers))
    )
