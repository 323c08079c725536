"""Options that need packages which the wheel does not bring along."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from kidxlib.errors import UsageError

#: The packages that extras have besides, each with the extra that brings all that is needed where it is.
_EXTRAS: Final = {
    "deltalake": "catalog",
    "pydantic": "catalog",
    "prometheus_client": "catalog",
    "botocore": "copies",
}


@contextlib.contextmanager
def needing_packages(option: str) -> Iterator[None]:
    """Within the context, import what an option needs.

    Raises:
        UsageError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        extra = _EXTRAS[error.name]
        raise UsageError(
            f"{option}: needs the package {error.name}; install kidx with its extra: pip install 'WHEEL[{extra}]'"
        ) from error
