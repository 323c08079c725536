"""What users and their scripts see: help, exit codes, keys of JSON objects, metrics and tables. `python -m
tests.interface.seen` writes it into `frozen`, where the history shows what a release changes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner

from kidxlib.catalog.tables import CATALOG_VERSION, TABLES
from kidxlib.cli.main import kidx
from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.pages import PROJECT

FROZEN: Final = Path(__file__).parent / "frozen"
_WIDTH: Final = 100
_SAMPLES: Final = PROJECT / "samples"
_JOBS: Final = tuple(sorted(path.stem for path in (PROJECT / "jobs").glob("[a-z]*.py")))
#: Objects whose keys are names of something: topics, files, places.
_BY_NAME: Final = "*"


def seen() -> Iterator[tuple[str, str]]:
    """Each file below `FROZEN`, and what is to stand in it."""
    for name, command in _commands():
        yield f"help/{name}.txt", _help(command, name)
    yield "exit-codes.txt", _lines(f"{code.value} {code.name}" for code in ExitCode)
    yield "tables.txt", _lines(_of_tables())
    with tempfile.TemporaryDirectory() as directory:
        yield from _of_runs(Path(directory))


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(kidx)
    yield "kidx", kidx
    for name in kidx.list_commands(context):
        command = kidx.get_command(context, name)
        assert command is not None
        yield f"kidx {name}", command
    for name in _JOBS:
        yield f"spark-submit.sh {name}", getattr(import_module(f"jobs.{name}"), name)


def _help(command: click.Command, name: str) -> str:
    # Click keeps the help option with the names that whoever ran a command first has given it.
    formers = getattr(command, "_formerly", {}).values()
    shown = {each: each._help_option for each in (command, *(former.command() for former in formers))}
    try:
        for each in shown:
            each._help_option = None
        return CliRunner().invoke(command, ["--help"], prog_name=name, terminal_width=_WIDTH).output
    finally:
        for each, help_option in shown.items():
            each._help_option = help_option


def _of_tables() -> Iterator[str]:
    yield f"catalog version {CATALOG_VERSION}"
    for table in TABLES:
        for column in table.columns:
            nullable = "" if column.nullable else " not null"
            yield f"{table.name}.{column.name} {column.field.type}{nullable}"


def _of_runs(directory: Path) -> Iterator[tuple[str, str]]:
    """Keys of what commands print with `--json`, and the names of their metrics."""
    logs, copy, index, catalog = (directory / name for name in ("logs", "copy", "index", "catalog"))
    shutil.copytree(_SAMPLES / "kafka-logs", logs)
    shutil.copytree(logs, copy)
    (copy / "txn-mixed-0" / "00000000000000000084.log").unlink()
    damaged = copy / "plain-zstd-0" / "00000000000000013697.log"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    tiered = _SAMPLES / "tiered" / "kafka-tiered-storage"
    metadata = ("--tiered-metadata", _SAMPLES / "tiered" / "log-dir")
    source, metrics = ("--source", f"s={copy}"), directory / "kidx.prom"
    runs: Mapping[str, tuple[object, ...]] = {
        "build DIR": ("build", copy, "--index-dir", index),
        "build": ("build", *source, "--catalog", catalog, "--index-dir", index, "--metrics-file", metrics),
        "verify DIR": ("verify", copy, "--index-dir", index),
        "verify": ("verify", *source, "--catalog", catalog),
        "verify-tiered": ("verify-tiered", tiered, *metadata),
        "repair-tiered": ("repair-tiered", tiered, *metadata, "--index-dir", directory / "mirror"),
        "recover": ("recover", logs),
        "retention": ("retention", "--catalog", catalog, "--now", "2026-11-25T00:00Z"),
        "seek": ("seek", "--catalog", catalog, "--topic", "append-time", "--partition", "0", "--offset", "100"),
        "report": ("report", "--catalog", catalog),
        "accept": ("accept", "--catalog", catalog),
        "compare": ("compare", logs, copy),
        "who": ("who", "txn-mixed-0", "90", logs),
        "dump": ("dump", logs / "txn-mixed-0" / "00000000000000000084.log"),
        "export": ("export", logs, "--output", directory / "records.parquet"),
        "tables": ("tables", "--catalog", catalog),
        "compact": ("compact", "--catalog", catalog, "--trim", "--orphans", "--tables"),
        "forget-source": ("forget-source", "s", "--catalog", catalog),
        "doctor": ("doctor",),
    }
    for name, arguments in runs.items():
        words = [*map(str, arguments), "--json"]
        ended = CliRunner().invoke(kidx, words, standalone_mode=False)
        assert ended.exception is None, (words, ended.exception)
        printed = ended.stdout.splitlines() if name == "dump" else [ended.stdout]
        keys = set[str]().union(*(_keys(json.loads(each)) for each in printed))
        yield f"json/{name}.txt", _lines([f"exit code {ended.return_value or 0}", *sorted(keys)])
    named = {line.split()[2] for line in metrics.read_text().splitlines() if line.startswith("# HELP ")}
    yield "metrics.txt", _lines(sorted(named))


def _keys(value: Any, path: str = "") -> set[str]:
    """The paths of all keys in a JSON value, `[]` for what a list has."""
    if isinstance(value, list):
        return set().union(*(_keys(each, f"{path}[]") for each in value)) if value else set()
    if not isinstance(value, dict):
        return set()
    found = set[str]()
    for key, inside in value.items():
        name = key if key.isidentifier() else _BY_NAME
        found |= {f"{path}.{name}".lstrip("."), *_keys(inside, f"{path}.{name}".lstrip("."))}
    return found


def _lines(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    shutil.rmtree(FROZEN, ignore_errors=True)
    for name, text in seen():
        path = FROZEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
