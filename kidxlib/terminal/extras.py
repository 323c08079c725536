"""The error about an option that needs packages of an extra."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from kidxlib.errors import UsageError

#: The packages that each extra brings, the smaller extra first.
_CATALOG: Final = ("deltalake", "pydantic", "prometheus_client")
_EXTRAS: Final = {"catalog": _CATALOG, "copies": (*_CATALOG, "botocore"), "check": ("confluent_kafka",)}


@contextlib.contextmanager
def needing_packages(option: str, extra: str = "catalog") -> Iterator[None]:
    """Within the context, import what an option needs; `extra` is expected to bring all of it."""
    try:
        yield
    except ModuleNotFoundError as error:
        able = [name for name in _EXTRAS if error.name in _EXTRAS[name]]
        if not able:
            raise
        enough = extra if extra in able else able[0]
        missing = [name for name in _EXTRAS[enough] if find_spec(name) is None]
        raise UsageError(
            f"{option}: needs packages that are not installed: {', '.join(missing)}; "
            f"install kidx with the extra that brings them: pip install 'WHEEL[{enough}]'"
        ) from error
