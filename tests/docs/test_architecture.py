"""What docs/architecture.md promises of the code's shape."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from benchmarks.pictures import EXPLAINING, IMAGES, drawn
from tests.docs.package_graph import PICTURE, below, package_imports, picture
from tests.docs.pages import PROJECT

#: Lines of a function that is not compiled.
FUNCTION_MOST = 60
#: Whose functions are as short, too.
OTHER_DIRECTORIES = ("airflow_dags", "benchmarks", "tests")

#: How no docstring begins: then a reader would have to look elsewhere for what it is about.
WITHOUT_SUBJECT = re.compile(r"(Of|Those|By|As|It|The same)\b")


def modules() -> list[Path]:
    found = [*PROJECT.glob("kidxlib/**/*.py"), *PROJECT.glob("jobs/**/*.py")]
    return sorted(path for path in found if path.name != "__init__.py")


def functions() -> Iterator[tuple[str, int]]:
    """Those that are not compiled, by name, with their lines."""
    others = (path for name in OTHER_DIRECTORIES for path in PROJECT.glob(f"{name}/**/*.py"))
    for path in (*modules(), *others):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not any("njit" in ast.unparse(by) for by in node.decorator_list):
                assert node.end_lineno is not None
                yield f"{path.relative_to(PROJECT)}: {node.name}", node.end_lineno - node.lineno + 1


def test_functions_are_short() -> None:
    assert {name: count for name, count in functions() if count > FUNCTION_MOST} == {}


def test_a_docstring_begins_with_what_it_is_about() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    begun = {
        f"{path.relative_to(PROJECT)}:{getattr(node, 'lineno', 1)}": text.splitlines()[0]
        for root in ("kidxlib", "jobs", "airflow_dags", "benchmarks")
        for path in sorted(PROJECT.glob(f"{root}/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    }
    assert {name: line for name, line in begun.items() if WITHOUT_SUBJECT.match(line)} == {}


def test_one_module_opens_logs_for_writing() -> None:
    """Rule 1 of CONTRIBUTING.md: logs are cut in one place, which `recover --truncate` alone calls."""
    cutting = re.compile(r"\bftruncate\(|os\.truncate\(|log_cutter import")
    found = {str(path.relative_to(PROJECT)) for path in modules() if cutting.search(path.read_text())}
    assert found == {"kidxlib/operations/recover/log_cutter.py", "kidxlib/operations/recover/make_ready.py"}


def test_few_modules_unpickle() -> None:
    """What SECURITY.md promises: values of Spark's own channels, and two files of a folder that is the run's alone."""
    found = {str(path.relative_to(PROJECT)) for path in modules() if "pickle.loads(" in path.read_text()}
    of_spark = {"jobs/common/spark/engine.py", "kidxlib/spark/bulk.py"}
    assert found == of_spark | {"kidxlib/recovery/kept_scans.py", "kidxlib/operations/recover/forecast.py"}


def test_mypy_knows_each_compiled_module() -> None:
    """What stands inside compiled functions is typed by numba: pyproject.toml lists their modules."""
    compiled = {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        for path in modules()
        if re.search(r"^from kidxlib\.jit\.compiler import [^#]*?\bnjit\b", path.read_text(), re.MULTILINE)
    }
    overrides = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    assert [set(each["module"]) for each in overrides if "disable_error_code" in each] == [compiled]


def test_the_picture_is_of_this_code() -> None:
    assert PICTURE.read_text() == picture(), "run .venv/bin/python -m tests.docs.render"


def test_no_package_needs_itself() -> None:
    edges = package_imports()
    assert [package for package in edges if package in below(edges, package)] == []


@pytest.mark.parametrize("package", sorted(package_imports()))
def test_tests_stand_where_their_package_does(package: str) -> None:
    """The library's below tests/kidxlib, those of jobs.common below tests/jobs."""
    root, _, name = package.removeprefix("jobs.").partition(".")
    directory = PROJECT / "tests" / root.replace("common", "jobs") / name
    assert list(directory.rglob("test_*.py")), f"{package}: no test below {directory}"


def test_pytest_enters_every_directory_of_tests(pytestconfig: pytest.Config) -> None:
    left_out = pytestconfig.getini("norecursedirs")
    files = (path.relative_to(PROJECT) for path in PROJECT.glob("tests/**/test_*.py"))
    directories = {name for path in files for name in path.parts[:-1]}
    assert [name for name in directories if any(fnmatch(name, pattern) for pattern in left_out)] == []


@pytest.mark.parametrize("name", EXPLAINING)
def test_picture_is_as_the_code_draws_it(name: str) -> None:
    committed = IMAGES / f"{name}.svg"
    assert drawn(EXPLAINING[name]) == committed.read_bytes(), (
        f"{committed.name} has changed; run: .venv/bin/python -m benchmarks.run pictures"
    )
