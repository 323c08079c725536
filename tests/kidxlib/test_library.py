"""`import kidxlib` gives the library, all of it documented and typed, and loads nothing before it is used."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields, is_dataclass
from importlib import metadata
from inspect import cleandoc, getsource, isfunction, ismethod
from pathlib import Path
from typing import Final, assert_type, get_args, get_type_hints

import pyarrow as pa
import pytest

import kidxlib
from kidxlib.errors import UnknownVersionError
from kidxlib.indexing.finish_partition import FinishedPartition
from kidxlib.jit import compiler
from kidxlib.log.log import EpochEndOffset
from tests.support.cluster_metadata import of_broker, put_metadata, topic_id
from tests.support.logs.golden import SAMPLES
from tests.support.seeks import sample_directory

PACKAGE: Final = Path(kidxlib.__file__).parent
PROJECT: Final = PACKAGE.parent
LOG: Final = SAMPLES / "txn-mixed-0" / "00000000000000005797.log"


def started(code: str, *options: str, library: Path = PROJECT) -> str:
    """What a Python process of its own prints."""
    environment = {**os.environ, "PYTHONPATH": str(library), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


def test_importing_it_loads_nothing() -> None:
    code = """
import sys
import kidxlib
dir(kidxlib), kidxlib.__version__
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "numba", "pyarrow", "pandas", "click"}))
print(sorted(name for name in sys.modules if name.startswith("kidxlib")))
kidxlib.KidxError
print(sorted(name for name in sys.modules if name.startswith("kidxlib")))
"""
    assert started(code).splitlines() == ["[]", "['kidxlib']", "['kidxlib', 'kidxlib.errors']"]


def test_what_a_catalog_knows_is_answered_without_a_compiler() -> None:
    """Numba takes a second to import. A build with nothing new to read, and a page need none of it."""
    code = """
import sys
import kidxlib.operations.build.build
import kidxlib.operations.local_backend
print("numba" in sys.modules)
"""
    assert started(code) == "False"


def test_each_name_is_there_once() -> None:
    """For `import *`, for who loads it, and for a type checker, in the same words."""
    homes = [(home, name) for home, names in kidxlib._HOMES.items() for name in names]
    assert sorted(name for _, name in homes) == sorted(kidxlib.__all__)
    assert len(set(kidxlib.__all__)) == len(kidxlib.__all__) <= 39
    typed = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kidxlib.")
        for alias in node.names
    ]
    assert sorted(typed) == sorted((f"kidxlib.{home}", name) for home, name in homes)
    assert {*kidxlib.__all__, "__version__"} <= set(dir(kidxlib))


@pytest.mark.parametrize("name", kidxlib.__all__)
def test_each_name_is_documented(name: str) -> None:
    """It says itself what it is, and the page shows it or names it."""
    found = getattr(kidxlib, name)
    assert (found.__module__, found.__name__) == (f"kidxlib.{_home(name)}", name)
    text = found.__doc__
    assert text and not text.startswith(f"{name}("), "no docstring of its own"
    assert re.search(rf"\b{name}\b", (PROJECT / "docs" / "library.md").read_text())


def _given() -> list[type]:
    """The classes that are public, and those that their fields, properties and calls give, and so on."""
    to_look_at, found = [getattr(kidxlib, name) for name in kidxlib.__all__], list[type]()
    while to_look_at:
        each = to_look_at.pop()
        if isinstance(each, type) and each in found:
            continue
        hints = [] if isinstance(each, type) else [get_type_hints(each)["return"]]
        if isinstance(each, type):
            found.append(each)
            hints += get_type_hints(each).values() if is_dataclass(each) else ()
            members = (getattr(each, name) for name in dir(each) if not name.startswith("_"))
            calls = (getattr(member, "fget", getattr(member, "func", member)) for member in members)
            hints += [get_type_hints(call).get("return") for call in calls if isfunction(call) or ismethod(call)]
        for hint in hints:
            parts = [hint]
            for part in parts:
                parts += get_args(part)
            to_look_at += [part for part in parts if isinstance(part, type) and part.__module__.startswith("kidxlib")]
    return sorted(found, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", _given(), ids=lambda kind: kind.__qualname__)
def test_each_field_is_documented(kind: type) -> None:
    """docs/library.md calls a field stable that its class's docstring lists: every one of a class that callers get."""
    listed: set[str] = set()
    for base in kind.__mro__:
        attributes = cleandoc(base.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        for names in re.findall(r"^ {4}(\w+(?:, \w+)*): ", attributes, re.MULTILINE):
            listed |= set(names.split(", "))
    if is_dataclass(kind):
        fields_of_it = {field.name for field in fields(kind)}
    else:
        own = kind.__dict__.get("__init__")
        fields_of_it = set(re.findall(r"self\.([a-z]\w*)(?:: .+)? = ", getsource(own)) if isfunction(own) else ())
    assert fields_of_it <= listed


@pytest.mark.parametrize(
    "kind", [kind for kind in (*_given(), FinishedPartition) if is_dataclass(kind)], ids=lambda kind: kind.__qualname__
)
def test_a_result_does_not_change(kind: type) -> None:
    """Or its docstring says that it may, and why."""
    frozen = kind.__dict__["__dataclass_params__"].frozen
    assert frozen != ("is not frozen" in str(kind.__doc__).replace("\n", " "))


def test_classes_that_callers_get_are_found() -> None:
    """Of a field's field, of a property, of a call and in a tuple."""
    names = {kind.__name__ for kind in _given()}
    assert names >= {"ScanEnd", "SegmentFacts", "SimulatedSegment", "BatchPosition", "EpochEndOffset", "Header"}


def _home(name: str) -> str:
    return next(home for home, names in kidxlib._HOMES.items() if name in names)


def test_the_page_uses_public_names_alone() -> None:
    """In docs/library.md, and in the README."""
    for page in ("docs/library.md", "README.md"):
        text = (PROJECT / page).read_text()
        assert not re.findall(r"(?:from|import) kidxlib\.\S+", text), page
        assert set(re.findall(r"\bkidxlib\.(\w+)", text)) <= {*kidxlib.__all__, "__all__", "__version__"}, page


def test_a_path_may_be_text() -> None:
    """Wherever one is taken, as docs/library.md says: answers are those for a `pathlib.Path`."""
    directory = str(LOG.parent)
    for path in (directory, LOG.parent):
        log = kidxlib.Log.open(path, directory)
        assert (log.name, len(log.segments)) == (directory, 4)
        segment = kidxlib.LogSegment.open(path, 5797, directory)
        assert segment.size == LOG.stat().st_size
        assert segment.offset_index.name == f"{directory}/00000000000000005797.index"
        assert kidxlib.Seeker.of_directory(path, directory).log.log_end_offset == 10_333


def test_what_differs_between_releases_goes_by_the_node(tmp_path: Path) -> None:
    """Aborted transactions of a version that Kafka 4.3 takes: by what is asked for, else by what was registered."""
    directory = sample_directory(tmp_path / "txn-mixed-0")
    index = directory / "00000000000000000084.txnindex"
    index.write_bytes(b"\0\1" + index.read_bytes()[2:])

    def aborted(kafka_version: str | None = None) -> int:
        log = kidxlib.open_partition(directory, kafka_version=kafka_version)
        return len(log.segments[1].transaction_index.all())

    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    node = of_broker("RegisterBrokerRecord", 1, [topic_id("a")], level=30)
    for registered in (False, True):
        if registered:
            put_metadata(tmp_path, [node])
        for kafka_version, is_taken in ((None, registered), ("4.3.1", True), ("4.4", False)):
            if is_taken:
                assert aborted(kafka_version) > 0
            else:
                with pytest.raises(UnknownVersionError, match=r"which only Kafka up to 4\.3 takes"):
                    aborted(kafka_version)
            found = kidxlib.audit_directory(directory, kafka_version=kafka_version)
            assert (found.worst is kidxlib.Verdict.BROKEN) == (not is_taken)
    with pytest.raises(kidxlib.UsageError, match=r"kafka_version 2: expected a version of Kafka from 3\.9 to 4\.4"):
        kidxlib.open_partition(directory, kafka_version="2")


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'kidxlib' has no attribute 'nonsense'"):
        kidxlib.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert started("from kidxlib import java; print(java.__name__)") == "kidxlib.java"


def test_types_come_along() -> None:
    """For who checks with mypy: this file is checked strictly."""
    assert (PACKAGE / "py.typed").exists()
    recovered = assert_type(kidxlib.recover_file(LOG), kidxlib.RecoveredSegment)
    assert recovered.end.status is kidxlib.Status.OK
    log = assert_type(kidxlib.open_partition(LOG.parent), kidxlib.Log)
    assert_type(log.leader_epoch_cache, kidxlib.LeaderEpochCache)
    assert assert_type(log.leader_epoch_cache.epoch_for_offset(0), int | None) == 0
    assert assert_type(log.end_offset_for_epoch(0), EpochEndOffset | None) == EpochEndOffset(0, 10_333)
    assert_type(kidxlib.read_records(LOG, columns=["offset"]), pa.Table)
    assert_type(kidxlib.__version__, str)


def test_compiled_code_does_not_depend_on_what_is_public() -> None:
    """What is compiled is compiled again when a module changes that it imports: this one imports all of them."""
    imports_njit = re.compile(r"^from kidxlib\.jit\.compiler import [^#]*?\bnjit\b", re.MULTILINE)
    compiled = [path for path in PACKAGE.rglob("*.py") if imports_njit.search(path.read_text())]
    assert len(compiled) > 5
    for source in compiled:
        to_read, read = [source], set[Path]()
        while to_read:
            path = to_read.pop()
            if path not in read:
                read.add(path)
                to_read += compiler._read(path)[1]
        assert PACKAGE / "__init__.py" not in read, source


# ---- the version ----


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert kidxlib.__version__ == metadata.version("kidx") == project["version"]
    # Without what is installed, a checkout.
    assert started("import kidxlib; print(kidxlib.__version__)", "-S") == project["version"]


@pytest.mark.parametrize("beside", [None, '[project]\nname = "other"\nversion = "7"\n', "no TOML", "[tool]\n"])
def test_a_copy_that_nobody_installed_has_no_version(beside: str | None, tmp_path: Path) -> None:
    (tmp_path / "kidxlib").mkdir()
    (tmp_path / "kidxlib" / "__init__.py").write_bytes((PACKAGE / "__init__.py").read_bytes())
    if beside is not None:
        (tmp_path / "pyproject.toml").write_text(beside)
    assert started("import kidxlib; print(kidxlib.__version__)", "-S", library=tmp_path) == "0+unknown"
