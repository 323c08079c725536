"""The page docs/messages.md: every message by what it is about, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.docs.messages import WARNING, messages

MESSAGES_PAGE: Final = "docs/messages.md"
#: The name of an option stands in too many messages to tell one.
_OPTION: Final = re.compile("--[a-z-]+")
_WORD: Final = re.compile("[A-Za-z]{2,}")
_WORDS_LEAST: Final = 2


@dataclass(frozen=True, slots=True)
class Section:
    """Messages that a reader treats alike.

    Attributes:
        about: what they have in common and what to do, before the list.
        kinds: classes of errors, or `WARNING`.
        are_complete: each says by itself what to do, or passes on what another program says.
    """

    title: str
    about: str
    kinds: tuple[str, ...]
    are_complete: bool = False


SECTIONS: Final = (
    Section(
        "Options and inputs",
        "Exit code 2: nothing was done. Change what the line names, and run the command again.",
        ("UsageError", "LockHeldError", "NotReadHereError"),
        are_complete=True,
    ),
    Section(
        "The catalog",
        "Exit code 1. Index files that a build has written are in place: the same command, run again, records them.",
        ("CatalogError", "NoDeltaTableError"),
        are_complete=True,
    ),
    Section(
        "Files that cannot be written",
        "Exit code 1, or 3 where a run goes on with other files. The file that had the name before is still there, "
        "whole. Mend what the operating system says: room, rights, the disk. Then run the same command again.",
        ("PublishError", "LogNotCutError", "StorageError"),
        are_complete=True,
    ),
    Section(
        "Runs that end early",
        "Exit code 1. The same command, run again, goes on from what was done.",
        ("KidxError", "NoAnswerError", "StoreBusyError", "SparkEndedError", "MissingLibraryError", "WorkersDiedError"),
        are_complete=True,
    ),
    Section(
        "Logs that change or are damaged",
        "A run goes on with the other logs; reading ends there, with exit code 1. A log that grows is read at the next "
        "run. Of a damaged one `kidx dump FILE` shows the place. Take the partition from another replica, or read past "
        "the damage as the line says.",
        ("LogChangedError", "DamagedLogError", "LostRecordsError"),
    ),
    Section(
        "Bytes that Kafka does not write",
        "Mostly part of a longer line that names the file. `kidx dump FILE` shows the place. An index file is written "
        "anew by `kidx build --repair`. The right bytes of a log are in a replica or a backup. A file of a newer Kafka "
        "may need a newer release of kidx.",
        (
            *("MalformedError", "MalformedRecordsError", "UnreadableMessageError", "DumpError", "CorruptIndexError"),
            *("UnknownVersionError", "UnknownRecordTypeError", "SnapshotError", "CheckpointError"),
            *("ClusterMetadataError", "RemoteLogMetadataError"),
        ),
    ),
    Section(
        "A page cache that is not trusted",
        "Why `kidx recover --trust-page-cache` reads logs from the disk after all. That takes longer; nothing is lost.",
        ("UntrustedError",),
    ),
    Section(
        "Calls of the library",
        "Errors of `kidxlib` that a wrong argument raises. No command prints them.",
        (
            *(
                "NoSegmentsError",
                "BrokenSegmentError",
                "OffsetOutOfRangeError",
                "InvalidFetchError",
                "NoSuchEntryError",
                "IndexSizeError",
            ),
            *("IndexFullError", "InvalidOffsetError", "OffsetOverflowError", "InvalidTimestampError"),
        ),
    ),
    Section("Warnings", "Lines that begin with `warning:`, on standard error. The run goes on.", (WARNING,)),
)


def is_recognised(text: str) -> bool:
    """Whether a message has words of its own, for which a reader can search. The others pass on what another program
    says of a place.
    """
    return len(_WORD.findall(_OPTION.sub("", text))) >= _WORDS_LEAST


def listed() -> Iterator[str]:
    """What the page has after its beginning."""
    for section in SECTIONS:
        yield f"## {section.title}"
        yield ""
        yield section.about
        yield ""
        for text in sorted({message.text for message in messages() if message.kind in section.kinds}):
            if is_recognised(text):
                yield f"- {_code(text)}"
        yield ""


def _code(text: str) -> str:
    """Text as Markdown shows it letter by letter."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
