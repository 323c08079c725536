"""The catalogs in `catalogs.toml`, for which Airflow has DAGs."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any, Final

from airflow.sdk import Asset
from pydantic import ConfigDict, ValidationError  # Airflow itself needs it
from pydantic.dataclasses import dataclass

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_DAGS: Final = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True))
class Catalog:
    """One catalog and how it is kept; docs/airflow.md explains each key.

    Attributes:
        name: the name of the table; the DAGs, the asset and the pool are named after it.
    """

    name: str
    catalog: str
    index_dir: str
    sources: list[str] = field(default_factory=list)
    topics: str = ".*"
    settings: str = "conf/kidx.toml"
    build_schedule: str = "0 * * * *"
    build_options: list[str] = field(default_factory=list)
    audit_schedule: str = "30 1 * * *"
    audit_bytes: str = ""
    audit_options: list[str] = field(default_factory=list)
    compact_options: list[str] = field(default_factory=lambda: ["--trim"])
    retention_schedule: str = "30 3 * * *"
    retention_options: list[str] = field(default_factory=list)
    report: str = ""
    tables_schedule: str = "30 4 * * 0"
    tables_options: list[str] = field(default_factory=lambda: ["--apply"])
    conn_id: str = "kidx_spark"
    apply_conn_id: str = ""
    conf: dict[str, str] = field(default_factory=dict)
    py_files: str = ""
    archives: str = ""
    env: dict[str, str] = field(default_factory=dict)
    home: str = str(_DAGS.parent)
    owner: str = "kidx"
    retries: int = 2
    retry_minutes: float = 5
    timeout_hours: float = 12
    approval_hours: float = 24

    def at_home(self, path: str) -> str:
        """A path in `catalogs.toml`: relative ones start at `home`; URLs stay as they are."""
        return path if "://" in path else os.path.join(self.home, path)

    @property
    def pool(self) -> str:
        return f"kidx_{self.name}"

    @property
    def asset(self) -> Asset:
        """The asset on which other DAGs may be scheduled."""
        directory = self.at_home(self.catalog)
        return Asset(name=f"kidx_{self.name}", uri=directory if "://" in directory else Path(directory).as_uri())


def read_catalogs() -> list[Catalog]:
    """All catalogs of the file. Airflow shows a ValueError about a wrong name, key or value as an import error."""
    path = Path(os.environ.get("KIDX_CATALOGS", _DAGS / "catalogs.toml"))
    return [_catalog(path, name, keys) for name, keys in tomllib.loads(path.read_text()).items()]


def _catalog(path: Path, name: str, keys: Any) -> Catalog:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{path}: [{name}]: DAGs are called by it: expected letters, digits, '.', '_' and '-'")
    if not isinstance(keys, dict):
        raise ValueError(f"{path}: {name}: {keys!r}, expected a table: [{name}]")  # noqa: TRY004 (as of any wrong key)
    known = {item.name: item for item in fields(Catalog) if item.name != "name"}
    needed = {key for key, item in known.items() if item.default is MISSING and item.default_factory is MISSING}
    for what, wrong in (("unknown", keys.keys() - known.keys()), ("missing", needed - keys.keys())):
        if wrong:
            raise ValueError(f"{path}: [{name}]: {what}: {', '.join(sorted(wrong))}; known: {', '.join(sorted(known))}")
    try:
        return Catalog(name=name, **keys)
    except ValidationError as error:
        raise ValueError(f"{path}: [{name}]: {_first_wrong(error)}") from None


def _first_wrong(error: ValidationError) -> str:
    """The first value of a wrong type: its key, the value, and the expected type."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"
