"""Takes a source out of a catalog, with its rows in all tables, or counts what would go, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, TABLES
from kidxlib.errors import UsageError
from kidxlib.operations.backend import OpenBackend
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.settings import read_settings
from kidxlib.storage.location import as_text
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode

#: A build's row names all of its sources; the others keep theirs.
_SOURCES: Final = "sources"

#: The segments first: a build that finds them in the catalog takes for granted what the other tables have of them. The
#: builds last. Where this was stopped the source is still found in a later table, and all the rest goes then.
_ORDER: Final = (SEGMENTS, *(table for table in TABLES if table not in (SEGMENTS, BUILDS)), BUILDS)

#: Rows that one commit removes.
_ROWS_AT_ONCE: Final = 200_000


def rows_of_source(tables: Tables, source: str) -> dict[str, int]:
    """How many rows each table has of a source, by the table's name; a build counts if it read it."""
    return {table.name: _keys(tables, table, source).num_rows for table in _ORDER}


def sources_of(tables: Tables) -> set[str]:
    """The names of all sources that any table has."""
    found: set[str] = set()
    for table in _ORDER:
        if table is BUILDS:
            for row in tables.read(BUILDS, [_SOURCES]).to_pylist():
                found.update(dict(row[_SOURCES]))
        else:
            found.update(map(str, pc.unique(tables.read(table, ["source"])["source"]).to_pylist()))
    return found


def forget(tables: Tables, source: str, rows: Mapping[str, int]) -> None:
    """Remove the rows of a source. Run again after a stop it goes on.

    Args:
        rows: how many each table has, by name; others are not committed to.
    """
    for table in _ORDER:
        if not rows[table.name]:
            continue
        keys = _keys(tables, table, source)
        if table is BUILDS:
            tables.change(BUILDS, {"key": keys}, partial(updates.forgotten, source=source), by=BUILDS.key)
            continue
        keys = keys.sort_by([(name, "ascending") for name in table.order])
        for start in range(0, keys.num_rows, _ROWS_AT_ONCE):
            found = {"key": keys.slice(start, _ROWS_AT_ONCE)}
            tables.change(table, found, partial(updates.removed, table=table), by=table.key)


def _keys(tables: Tables, table: Table, source: str) -> pa.Table:
    """The keys of the rows of a source."""
    if table is not BUILDS:
        return tables.read(table, table.key, [Among("source", (source,))])
    builds = tables.read(BUILDS, [*BUILDS.key, _SOURCES])
    is_of_it = [source in dict(row[_SOURCES]) for row in builds.to_pylist()]
    return builds.filter(pa.array(is_of_it, pa.bool_())).select(BUILDS.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOptions:
    """The options as they were given; None or False where they were not."""

    source: str
    catalog: str | None
    database: str | None
    apply: bool
    settings_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """What to do.

    Attributes:
        source: by name.
        apply: remove its rows, and do not only count them.
    """

    context: RunContext
    source: str
    apply: bool


def forget_request(options: ForgetOptions) -> ForgetRequest:
    """Put options and settings together."""
    if (name := as_text(options.source)) != options.source:
        raise UsageError(
            f"{name}: found bytes that are not UTF-8, which the name of no source has; name one of the catalog"
        )
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, None).with_catalog()
    return ForgetRequest(context=context, source=options.source, apply=options.apply)


def run_forget(request: ForgetRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Remove the rows of a source; without `apply` only count them."""
    source, apply = request.source, request.apply
    with open_backend() as backend:
        tables = backend.catalog.tables
        rows = rows_of_source(tables, source)
        if not any(rows.values()):
            known = ", ".join(sorted(sources_of(tables))) or "none"
            raise UsageError(f"{source}: no such source in {tables.path}; there are: {known}")
        if apply:
            forget(tables, source, rows)
        if as_json:
            print_json({"catalog": tables.path, "source": source, "applied": apply, "rows": rows})
        else:
            _print_report(tables.path, source, rows, apply=apply)
    counts = {"tables": sum(map(bool, rows.values())), "rows": sum(rows.values())}
    return RunResult(code=ExitCode.OK, counts=counts, bytes=0)


def _print_report(catalog: str, source: str, rows: Mapping[str, int], *, apply: bool) -> None:
    print_line(f"source {source} of {catalog}")
    for table, count in rows.items():
        print_line(f"  {table:<22}{count:>14,} rows {'removed' if apply else 'would be removed'}")
    if not apply:
        print_line("nothing was removed: --apply does it")
    print_line("its logs and index files stay where they are")
