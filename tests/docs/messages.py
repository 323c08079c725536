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
