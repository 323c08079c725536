"""An index or auxiliary file as it lies there: its content, and the findings that files of several kinds may have, by
comparison with what recovery writes.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import FAILS_CHECK, Finding, Verdict
from kidxlib.errors import CorruptIndexError
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import map_file
from kidxlib.storage.packed import is_packed
from kidxlib.storage.store.s3 import is_object

if TYPE_CHECKING:  # it has compiled loops, for which a build with nothing new to read does not wait
    from kidxlib.index.abstract_index import AbstractIndex

Bytes: TypeAlias = NDArray[np.uint8]


def read_index(path: Location | str, use_mmap: bool) -> Bytes | OSError | None:
    """The content of an index; None if there is no file; the error if it cannot be read."""
    text = str(path)
    try:
        # Objects and packed files are read as a whole in any case.
        return map_file(text) if use_mmap or is_object(text) or is_packed(text) else _read_around_holes(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _read_around_holes(path: str) -> Bytes:
    """A file's content. The room that a broker preallocates after the entries is a hole in the file, and is neither
    read nor copied.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
        content, position = np.zeros(size, np.uint8), 0
        while position < size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # only a hole follows
                    raise
                break
            end = min(os.lseek(descriptor, position, os.SEEK_HOLE), size)
            while position < end:
                got = os.preadv(descriptor, [content[position:end].data], position)
                if not got:
                    return content[:position]  # the file was shortened in the meantime
                position += got
    content.flags.writeable = False
    return content


def finding_on_unreadable_file(suffix: str, error: OSError) -> Finding:
    """The finding on an index or auxiliary file that cannot be read."""
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason="unreadable",
        detail=error.strerror or str(error),
        consequence="a broker that cannot read it takes its log dir out of use",
    )


class IndexFileFindings:
    """Makes the findings on one index file."""

    def __init__(
        self, suffix: str, kind: type[AbstractIndex[Any]], base_offset: int, content: Bytes, expected: bytes
    ) -> None:
        self._suffix = suffix
        self._entry_bytes = kind.entry_bytes
        self._found_index = kind.from_bytes(content, base_offset)
        self._expected_content = expected
        self._expected_index = kind.from_bytes(expected, base_offset)
        self._found_content = content.data
        self.is_identical = len(content) == len(expected) and content.data == expected

    def refused(self, index: AbstractIndex[Any]) -> Finding | None:
        """The finding on an index file that fails Kafka's own sanity check; None for one that passes."""
        try:
            index.sanity_check()
        except CorruptIndexError as error:
            return Finding(
                file=self._suffix,
                verdict=Verdict.BROKEN,
                reason=FAILS_CHECK,
                position=len(index) * self._entry_bytes,
                detail=str(error).partition(": ")[2],
                consequence="a broker does not look when it starts, but refuses it when it fetches it from a tier",
            )
        return None

    def broken(self, reason: str, entry: int, consequence: str) -> Finding:
        """The finding on an index file that is broken from an entry on."""
        return self._on_entry(Verdict.BROKEN, reason, max(entry, 0), consequence)

    def safe(self, reason: str, consequence: str) -> Finding:
        """The finding on an index file that differs from recovery's, and does no harm."""
        return self._on_entry(Verdict.SAFE, reason, self._first_differing_entry(), consequence)

    def _on_entry(self, verdict: Verdict, reason: str, number: int, consequence: str) -> Finding:
        return Finding(
            file=self._suffix,
            verdict=verdict,
            reason=reason,
            position=number * self._entry_bytes,
            detail=self._difference_in_words(number),
            consequence=consequence,
        )

    def _first_differing_entry(self) -> int:
        whole = np.dtype((np.void, self._entry_bytes))
        in_both = min(len(self._found_index), len(self._expected_index))
        found, expected = (
            np.frombuffer(self._found_content, whole, in_both),
            np.frombuffer(self._expected_content, whole, in_both),
        )
        different = np.flatnonzero(found != expected)
        return int(different[0]) if len(different) else in_both

    def _difference_in_words(self, number: int) -> str:
        def entry(index: AbstractIndex[Any]) -> object:
            return index.entry(number) if number < len(index) else None

        found, expected = self._found_index, self._expected_index
        return entries_differ(number, (len(found), entry(found)), (len(expected), entry(expected)))


def entries_differ(number: int, found: tuple[int, object], expected: tuple[int, object]) -> str:
    """How an index differs from what recovery writes, in words, from the entry of this number on. `found` and
    `expected` are how many entries the two have, and this one; None where they have no such entry.
    """
    (count, entry), (expected_count, expected_entry) = found, expected
    if entry is not None and expected_entry is not None and entry != expected_entry:
        return f"entry {number} is {entry}, recovery writes {expected_entry}"
    more = f"; entry {number} is {entry}" if entry is not None and expected_entry is None else ""
    less = f"; entry {number} would be {expected_entry}" if expected_entry is not None and entry is None else ""
    return f"{count} entries, recovery writes {expected_count}{more}{less}"
