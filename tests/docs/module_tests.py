"""Where the tests of a module of kidxlib are: in the file of its name, or in those that tests/README.md names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grimp
from click import Context

from kidxlib.cli.main import kidx
from tests.docs.pages import PROJECT

TABLE: Final = "tests/README.md"

_LIBRARY: Final = PROJECT / "kidxlib"
_TESTS: Final = PROJECT / "tests" / "kidxlib"
_ROW: Final = re.compile(r"^\| `([a-z0-9_/]+[a-z0-9])` \| (.+) \|$", re.MULTILINE)
_FILE: Final = re.compile(r"`([a-z0-9_/]+\.py)`")


def modules() -> list[str]:
    """Those of kidxlib, by path, as docs/architecture.md names them."""
    found = (path.relative_to(_LIBRARY).with_suffix("") for path in _LIBRARY.rglob("*.py"))
    return sorted(str(path) for path in found if path.name != "__init__")


def own_test(module: str) -> Path:
    """The file of a module's name, or of a package's."""
    directory, _, name = module.rpartition("/")
    return _TESTS / directory / f"test_{name}.py"


def unmirrored_tests() -> list[str]:
    """Test files below tests/kidxlib that have the name of no module and of no package."""
    packages = (path.parent.relative_to(_LIBRARY) for path in _LIBRARY.rglob("__init__.py"))
    mirrored = {own_test(name) for name in (*modules(), *map(str, packages))}
    return sorted(str(path.relative_to(PROJECT)) for path in _TESTS.rglob("test_*.py") if path not in mirrored)


def rows() -> list[tuple[str, list[str]]]:
    """The rows of the table: a module, and the files that test it."""
    return [(module, _FILE.findall(files)) for module, files in _ROW.findall((PROJECT / TABLE).read_text())]


@functools.cache
def _graph() -> grimp.ImportGraph:
    """All imports, but not those of `tests.conftest`: each test has these, so they would say nothing."""
    graph = grimp.build_graph("kidxlib", "jobs", "tests", cache_dir=None)
    graph.remove_module("tests.conftest")
    for name in kidx.list_commands(Context(kidx)):
        # The command imports its subcommands when they are called.
        module = name.replace("-", "_")
        graph.add_import(importer="kidxlib.cli.main", imported=f"kidxlib.cli.{module}")
    return graph


@functools.cache
def imported_by(test: str) -> frozenset[str]:
    """The modules of kidxlib that a test file imports, directly or not, with the conftest files beside and above it."""
    return frozenset(
        imported.removeprefix("kidxlib.").replace(".", "/")
        for module in _with_conftests(test)
        for imported in _graph().find_upstream_modules(module)
        if imported.startswith("kidxlib.")
    )


def _with_conftests(test: str) -> Iterator[str]:
    path = Path(test)
    for found in (path, *(parent / "conftest.py" for parent in path.parents)):
        module = ".".join(found.with_suffix("").parts)
        if module in _graph().modules:
            yield module
