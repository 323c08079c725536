"""Where a catalog is, as delta-rs is told: a directory, or a prefix in an S3 store."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from kidxlib.storage.store.s3 import endpoint, is_object


def storage_options(path: str) -> dict[str, str]:
    """What delta-rs needs besides a catalog's path. It finds credentials and the region as AWS' own tools do, and as
    kidx does for sources; what it does not find by itself is where another store is.

    Args:
        path: of a directory, or `s3://<bucket>/<prefix>`.
    """
    if not is_object(path) or (other := endpoint()) is None:
        return {}
    options = {"AWS_ENDPOINT_URL": other}
    if urlsplit(other).scheme == "http":  # else it takes TLS for granted
        options["AWS_ALLOW_HTTP"] = "true"
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        options["AWS_REGION"] = region
    return options
