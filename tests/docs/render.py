"""What pages say of tables, columns, messages, packages and modules, from the code: python -m tests.docs.render"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final, get_args

from benchmarks.figures import MEASURED, kept_figure, kept_machine, kept_table, recorded
from jobs.common.spark.local_rows import spark_type
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION, TABLES
from kidxlib.commands import dump
from kidxlib.dump.items import DumpedBatch, DumpedRecord, DumpItem
from kidxlib.retention.decide import decision_of
from kidxlib.retention.policy import PlanWarning, Reason
from tests.docs.messages import MESSAGES_PAGE, listed
from tests.docs.package_graph import PICTURE, picture
from tests.docs.pages import CATALOG_PAGE, PAGES, PROJECT, read

BEGIN: Final = "<!-- Made from the code by `python -m tests.docs.render`; do not edit. -->\n"
END: Final = "<!-- End of what is made. -->\n"
#: In front of a kept table of a benchmark, and behind it: `<!-- Measured: scan, rates; … -->`.
_MEASURED: Final = re.compile(
    r"(<!-- Measured: (?P<benchmark>[\w-]+), (?P<table>[\w ,]+); do not edit\. -->\n)"
    r".*?(?P<end><!-- End of what was measured\. -->\n)",
    re.DOTALL,
)
#: Around one kept figure in a sentence: `<!-- = job; job: fold -->0.07 s<!-- . -->` (`benchmarks.figures.kept_figure`).
FIGURE: Final = re.compile(r"(<!-- = (?P<benchmark>[\w-]+); (?P<words>[^|`\n]+?) -->).*?(?P<end><!-- \. -->)")
START_PAGE: Final = "docs/start.md"
PERFORMANCE_PAGE: Final = "docs/performance.md"
ARCHITECTURE_PAGE: Final = "docs/architecture.md"
DUMP_PAGE: Final = "docs/dump.md"
RETENTION_PAGE: Final = "docs/retention.md"

#: From how many packages on that import a type a reader of the code has to know it.
_PACKAGES_LEAST: Final = 4
_FIRST_SENTENCE: Final = re.compile(r".*?[.](?=\s|$)")

_INDEX_TREE: Final = (
    "var/index/",
    "├── txn-mixed-0/",
    "│   ├── 00000000000000000000.index",
    "│   ├── 00000000000000000000.timeindex",
    "│   ├── 00000000000000000084.index",
    "│   ├── 00000000000000000084.timeindex",
    "│   ├── 00000000000000000084.txnindex",
    "│   └── …",
    "└── …",
)
_TREE_WIDTH: Final = 40


def rendered(name: str) -> str:
    """The page of that name, with what stands between its markers made again."""
    text = with_what_is_kept(read(name))
    if name not in RENDERED:
        return text
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(RENDERED[name]())
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def pages_made() -> set[str]:
    """The names of the pages of which a part is made."""
    made = {name for name in PAGES if _MEASURED.search(read(name)) or FIGURE.search(read(name))}
    return made | RENDERED.keys()


def with_what_is_kept(text: str) -> str:
    """A page with the tables and figures that are kept of benchmarks between their markers.

    Raises:
        KeyError: a marker asks for what is not kept.
    """
    return FIGURE.sub(_with_figure, _MEASURED.sub(_with_table, text))


def _with_figure(found: re.Match[str]) -> str:
    return f"{found[1]}{kept_figure(found['benchmark'], found['words'].split('; '))}{found['end']}"


def _with_table(found: re.Match[str]) -> str:
    """The markers with a kept table between them, and where and when it was measured."""
    table = kept_table(found["benchmark"], found["table"])
    numbers = len(table.columns) - table.text_columns
    rules = "|".join(["---"] * table.text_columns + ["---:"] * numbers)
    lines = [f"| {' | '.join(table.columns)} |", f"|{rules}|", *(f"| {' | '.join(row)} |" for row in table.rows)]
    made = "\n".join([*lines, "", f"{kept_machine(found['benchmark'])}."])
    return f"{found[1]}\n{made}\n\n{found['end']}"


def _trees() -> Iterator[str]:
    """What the README's first command makes: index files on the left, tables on the right."""
    widest = max(len(table.name) for table in TABLES)
    tables = [f"├── {table.name + '/':<{widest + 2}} {_first_words(table)}" for table in TABLES]
    tables[-1] = tables[-1].replace("├", "└")
    yield "```text"
    for left, right in zip_longest(_INDEX_TREE, ("var/catalog/", *tables), fillvalue=""):
        yield f"{left:<{_TREE_WIDTH}} {right}".rstrip()
    yield from ("```", "")


def _first_words(table: Table) -> str:
    """What a table holds, in a few words."""
    words = re.split("[,:.]", table.comment, maxsplit=1)[0].replace("One row", "a row")
    return words[0].lower() + words[1:]


def _tables() -> Iterator[str]:
    yield from (f"These are the tables of catalog version {CATALOG_VERSION}.", "")
    for table in TABLES:
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {table.name}", "", table.comment, "")
    sorted_by = f" Files are sorted by {_names(table.sort_by)}." if table.sort_by else ""
    yield from (f"Key: {_names(table.key)}.{sorted_by}", "", "| column | type | meaning |", "|---|---|---|")
    for column in table.columns:
        null = "" if column.nullable else " not null"
        kind, meaning = spark_type(column).simpleString(), column.comment.replace("|", "&#124;")
        if column.formerly is not None:
            meaning += f" (before catalog version {column.formerly.before}: `{column.formerly.name}`)"
        yield f"| `{column.name}` | `{kind}`{null} | {meaning} |"
    yield ""


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _targets() -> Iterator[str]:
    """What is required of each benchmark, and what became of it when it was last kept."""
    for path in sorted(MEASURED.glob("*.json")):
        targets = [target for target in recorded(MEASURED, path.stem) if target.required]
        if not targets:
            continue
        yield from (f"### `{path.stem}`", "", "| | required | measured | min–max | met |", "|---|---:|---:|---:|---|")
        for target in targets:
            met = {True: "yes", False: "**no**", None: ""}[target.met]
            yield f"| {target.name} | {target.required} | {target.shown} | {target.range} | {met} |"
        yield from ("", f"{kept_machine(path.stem)}.", "")


def _packages() -> Iterator[str]:
    """Each package, and what it is for: the first paragraph of its docstring, which names its files."""
    yield from ("| package | what it is for |", "|---|---|")
    of_packages = (path for root in ("kidxlib", "jobs") for path in PROJECT.glob(f"{root}/**/__init__.py"))
    for path in sorted(of_packages, key=lambda path: path.parent):
        meaning = _one_line(_docstring(path).partition("\n\n")[0]).replace("|", "&#124;")
        yield f"| `{path.parent.relative_to(PROJECT)}` | {meaning} |"


def _architecture() -> Iterator[str]:
    yield from _packages()
    yield from ("", "## Types that packages hand on", "")
    yield from (f"Those that at least {_PACKAGES_LEAST} packages import, without errors.", "")
    yield from _types_handed_on()


def _types_handed_on() -> Iterator[str]:
    """Each such type, its file, and what it is."""
    yield from ("| type | its file | what it is |", "|---|---|---|")
    paths = sorted(path for root in ("kidxlib", "jobs") for path in PROJECT.glob(f"{root}/**/*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    importers: dict[tuple[str, str], set[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and path.stem != "__init__":
                for alias in node.names:
                    importers.setdefault((node.module, alias.name), set()).add(path.parent)
    for path, tree in trees.items():
        file = path.relative_to(PROJECT).with_suffix("")
        for node in tree.body:
            asked = importers.get((".".join(file.parts), getattr(node, "name", "")), set()) - {path.parent}
            if isinstance(node, ast.ClassDef) and len(asked) >= _PACKAGES_LEAST and path.stem != "errors":
                meaning = _FIRST_SENTENCE.match(_one_line(ast.get_docstring(node) or "").replace("|", "&#124;"))
                assert meaning, f"{path}: {node.name} has no docstring"
                yield f"| `{node.name}` | `{file.relative_to('kidxlib')}` | {meaning[0]} |"


def _docstring(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path}: no docstring"
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _objects_of_dumps() -> Iterator[str]:
    """The objects of `kidx dump --json`: what each is, and its fields in the order in which they are printed."""
    yield from ("| `type` | | fields |", "|---|---|---|")
    batch, record = (_keys_made(function) for function in (dump._batch_object, dump._record_object))
    special = {DumpedBatch: batch, DumpedRecord: (*record, "key", "value", "headers")}
    for item in get_args(DumpItem):
        meaning = _one_line(str(inspect.getdoc(item)).partition("\n\n")[0]).rstrip(".")
        fields = special.get(item, tuple(field.name for field in dataclasses.fields(item)))
        yield f"| `{item.kind}` | {meaning} | {_names(fields)} |"


def _keys_made(function: Callable[..., object]) -> tuple[str, ...]:
    """The keys of the dictionaries that a function writes out."""
    made = (node for node in ast.walk(ast.parse(inspect.getsource(function))) if isinstance(node, ast.Dict))
    keys = (key for node in made for key in node.keys)
    return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))


def _words_of_plans() -> Iterator[str]:
    """The reasons and warnings of a plan of retention."""
    yield from ("## Reasons", "", "| decision | reason | |", "|---|---|---|")
    for reason in Reason:
        yield f"| `{decision_of(reason)}` | `{reason}` | {reason.meaning} |"
    yield from ("", "## Warnings", "", "| warning | |", "|---|---|")
    for warning in PlanWarning:
        yield f"| `{warning}` | {warning.meaning} |"


#: What stands between the markers of which page.
RENDERED: Final = {
    START_PAGE: _trees,
    CATALOG_PAGE: _tables,
    MESSAGES_PAGE: listed,
    PERFORMANCE_PAGE: _targets,
    ARCHITECTURE_PAGE: _architecture,
    DUMP_PAGE: _objects_of_dumps,
    RETENTION_PAGE: _words_of_plans,
}

if __name__ == "__main__":
    PICTURE.write_text(picture())
    for name in pages_made():
        (PROJECT / name).write_text(rendered(name))
