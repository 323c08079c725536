"""The sources of a run: those that options name, or the bundled sample if it can do no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import CatalogError, UsageError
from kidxlib.indexing.remote_logs import NOT_SAID, RemoteOptions
from kidxlib.indexing.source import Source, parse_sources
from kidxlib.run.settings import BuildSettings
from kidxlib.terminal.options import PROJECT

_SAMPLE_DIR: Final = PROJECT / "samples" / "kafka-logs"
SAMPLE: Final = Source("sample", _SAMPLE_DIR)

_EXPECTED: Final = "name the log dir to read with --source"
_OR_SAMPLE: Final = "name the log dir to read with --source, or give --sample for the bundled one"


def chosen_sources(
    given: tuple[str, ...],
    *,
    sample: bool,
    options: Mapping[str, object],
    settings: BuildSettings,
    remote: RemoteOptions = NOT_SAID,
) -> tuple[Source, ...]:
    """The sources of `--source`, or the bundled sample: with `--sample`, or if this can only be a first try. A user who
    names a place, by one of the `options`, has data of their own, and has forgotten `--source`.
    """
    if sample and given:
        raise UsageError("--sample and --source: give one of them")
    if not sample and not given:
        defaults = BuildSettings()
        named = [option for option, value in options.items() if value]
        named += [
            f"build.{name} in the settings"
            for name in ("index_dir", "catalog")
            if getattr(settings, name) != getattr(defaults, name)
        ]
        if named:
            raise UsageError(f"no --source, though {named[0]} is given: {_what_to_name()}")
    sources = parse_sources(given, remote) or (_sample(asked_for=sample),)
    for source in sources:
        if not str(source.path).isprintable():
            raise UsageError(
                f"{source.path}: a path that cannot be written as text has no place in a table; "
                "use kidx without --catalog"
            )
    return sources


def _sample(*, asked_for: bool) -> Source:
    if not _SAMPLE_DIR.is_dir():
        option = "--sample" if asked_for else "no --source"
        raise UsageError(f"{option}: the sample comes with a checkout, and this kidx is not in one; {_EXPECTED}")
    return SAMPLE


def _what_to_name() -> str:
    return _OR_SAMPLE if _SAMPLE_DIR.is_dir() else _EXPECTED


def ensure_sample_alone(catalog: str) -> None:
    """Refuse the sample if the catalog has other sources: even the default catalog may be in use."""
    # Slow to import, and only needed here.
    from kidxlib.tables.delta_tables import DeltaTables

    try:
        rows = DeltaTables(catalog).read(PARTITIONS, ["source"])
    except CatalogError:  # Spark will report what is wrong with it
        return
    others = sorted(set(map(str, rows["source"].to_pylist())) - {SAMPLE.name})
    if others:
        raise UsageError(f"no --source, and the catalog {catalog} has {', '.join(others[:3])}: {_what_to_name()}")
