"""Every message that tells a user what is wrong, read from the code: what docs/messages.md lists."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kidxlib import errors
from kidxlib.errors import KidxError, UsageError
from tests.docs.pages import PROJECT

#: Stands for what a message names: a file, the value of an option, a number.
ANYTHING: Final = "…"
#: The kind of a message that does not end a run.
WARNING: Final = "warning"

_ERRORS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, KidxError)
}
#: What is put together of an error's arguments, where that is more than the first of them.
_PARTS: Final = {
    errors.MalformedError.__name__: "found {}, expected {}",
    errors.MalformedRecordsError.__name__: "batch at byte {}: found {}, expected {}",
    errors.UnreadableMessageError.__name__: "expected {}: {}",
}
#: Functions that say something, by how they are called: of what kind, and which of their arguments it is.
_SAYS: Final = {
    "warn": (WARNING, 0),
    "_log.warning": (WARNING, 0),
    "self.fail": (UsageError.__name__, 0),  # of a type of click's options
    "click.UsageError": (UsageError.__name__, 0),
    "self.refuse": (UsageError.__name__, 1),
    "outcome.warn": (WARNING, 0),
    "_raise_malformed": (UsageError.__name__, 2),
}
#: More texts than that of one call are those of a mistake in this module.
_TEXTS_MOST: Final = 30


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A message as the code has it.

    Attributes:
        kind: the class of the error, or `WARNING`.
        text: with `ANYTHING` for what is known only once it is said.
    """

    kind: str
    text: str


@functools.cache
def messages() -> tuple[Message, ...]:
    """All of them, each once, in order. Without those that only pass on what another error says."""
    found = {message for name in _sources() for message in _of_module(name)}
    return tuple(sorted(message for message in found if re.search("[A-Za-z]", message.text)))


def _of_module(name: str) -> Iterator[Message]:
    for scope in _scopes(_sources()[name].body):
        for node in ast.walk(scope):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                kind, first = _SAYS.get(called, (called.rpartition(".")[2], 0))
                if (kind in _ERRORS or kind == WARNING) and node.args[first:]:
                    yield from (Message(kind, text) for text in _Reader(name, scope).message(kind, node.args[first:]))


def _scopes(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The functions of a module and of its classes, and what stands beside them."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _scopes(node.body)
        else:
            yield node


@functools.cache
def _sources() -> dict[str, ast.Module]:
    """The modules that say something, by their dotted names."""
    paths = [path for package in ("kidxlib", "jobs") for path in sorted((PROJECT / package).rglob("*.py"))]
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the texts that expressions stand for, as far as the code alone tells.

    Attributes:
        module: its dotted name.
        scope: what the expression is in: a function, or another statement of the module.
    """

    module: str
    scope: ast.stmt

    def message(self, kind: str, arguments: list[ast.expr]) -> list[str]:
        """What is said of an error or a warning."""
        pattern = _PARTS.get(kind, "{}")
        parts = [self.texts(argument) for argument in arguments[: pattern.count("{}")]]
        said = (pattern.format(*texts) for texts in itertools.product(*parts))
        return [re.sub(f"{ANYTHING}+", ANYTHING, re.sub(r"%[sd]|\{option\}", ANYTHING, text)) for text in said]

    def texts(self, expression: ast.expr) -> list[str]:
        """All texts that an expression may stand for."""
        found = list(dict.fromkeys(self._texts(expression)))
        assert len(found) <= _TEXTS_MOST, f"{self.module}: {ast.unparse(expression)}: {found}"
        return found or [ANYTHING]

    def _texts(self, expression: ast.expr) -> Iterator[str]:
        match expression:
            case ast.Constant(value=str() | int() as value):
                yield str(value)
            case ast.JoinedStr(values=values):
                yield from map("".join, itertools.product(*map(self.texts, values)))
            case ast.FormattedValue(value=ast.Name(id=name)):
                yield from self._constant(name) or [ANYTHING]
            case ast.FormattedValue(value=ast.Call() as called):
                yield from self.texts(called)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from map("".join, itertools.product(self.texts(left), self.texts(right)))
            case ast.IfExp(body=body, orelse=orelse):
                yield from (*self.texts(body), *self.texts(orelse))
            case ast.Name(id=name):
                yield from self._constant(name) or self._assigned(name)
            case ast.Call(func=ast.Name(id=name)):
                yield from self._returned(name)
            case _:
                yield ANYTHING

    def _constant(self, name: str) -> list[str]:
        """The text or number that a module's name stands for; empty where it is none."""
        for module, known in self._places(name):
            for node in _sources()[module].body:
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                is_it = any(isinstance(target, ast.Name) and target.id == known for target in targets)
                if is_it and isinstance(value, ast.Constant) and isinstance(value.value, str | int):
                    return [str(value.value)]
        return []

    def _assigned(self, name: str) -> Iterator[str]:
        """The texts that a name is given in this function."""
        for node in ast.walk(self.scope):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
                yield from self._taken_apart(node.target, node.iter, name)
            elif isinstance(node, ast.Assign) and any(
                isinstance(each, ast.Name) and each.id == name for each in node.targets
            ):
                yield from self.texts(node.value)

    def _taken_apart(self, target: ast.Tuple, rows: ast.expr, name: str) -> Iterator[str]:
        """The texts that a name is given in a loop over rows that the code has."""
        if isinstance(rows, ast.Tuple):
            for column, each in enumerate(target.elts):
                if isinstance(each, ast.Name) and each.id == name:
                    for row in rows.elts:
                        if isinstance(row, ast.Tuple):
                            yield from self.texts(row.elts[column])

    def _returned(self, name: str) -> Iterator[str]:
        """The texts that a function of this project returns."""
        for module, known in self._places(name):
            for node in _sources()[module].body:
                if isinstance(node, ast.FunctionDef) and node.name == known:
                    for each in ast.walk(node):
                        if isinstance(each, ast.Return) and each.value is not None:
                            yield from _Reader(module, node).texts(each.value)

    def _places(self, name: str) -> Iterator[tuple[str, str]]:
        """The module in which a name is defined, and its name there."""
        yield self.module, name
        for node in _sources()[self.module].body:
            if isinstance(node, ast.ImportFrom) and node.module in _sources():
                yield from ((node.module, each.name) for each in node.names if (each.asname or each.name) == name)


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
        yield from (f"## {section.title}", "", section.about, "")
        for text in sorted({message.text for message in messages() if message.kind in section.kinds}):
            if is_recognised(text):
                yield f"- {_code(text)}"
        yield ""


def _code(text: str) -> str:
    """Text as Markdown shows it letter by letter."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
