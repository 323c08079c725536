"""Options that need packages which the wheel does not bring along."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from kidxlib.errors import UsageError

#: What the extra `catalog` has besides.
_PACKAGES: Final = ("deltalake", "pydantic", "prometheus_client")


@contextlib.contextmanager
def needing_packages(option: str) -> Iterator[None]:
    """Within the context, import what an option needs.

    Raises:
        UsageError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise UsageError(f"{option}: needs the package {error.name}; install kidx[catalog]") from error
