"""Zstd in Python: the standard library's from Python 3.14 on, and its backport before."""

from __future__ import annotations

import sys

from kidxlib.errors import MissingLibraryError

if sys.version_info >= (3, 14):
    try:
        from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
    except ImportError as error:
        raise MissingLibraryError(
            f"{sys.executable}: no compression.zstd, so this Python was built without libzstd; use one that has it"
        ) from error
else:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError

__all__ = ["ZstdCompressor", "ZstdDecompressor", "ZstdError"]
