"""Where the two checksums of Kafka's log come from: the C functions inside kept wheels, for the compiled loop to call.

CRC-32C (v2 batches) is libcrc32c from `google-crc32c`. CRC-32 (v0 and v1 messages) is libdeflate from `deflate`, and
where that wheel does not export it, the system's zlib, which gives the same values more slowly.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import zlib
from collections.abc import Iterable
from importlib import metadata
from typing import Final

import google_crc32c

from kidxlib.errors import MissingLibraryError


def _libraries_in(distribution: str, file_name: str) -> list[str]:
    """Paths of the files of an installed distribution whose name matches a pattern, by its own list of files."""
    files = metadata.files(distribution) or []
    return [str(file.locate()) for file in files if re.fullmatch(file_name, file.name)]


def _function(libraries: Iterable[str], name: str) -> ctypes._NamedFuncPointer | None:
    for path in libraries:
        function: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(path), name, None)
        if function is not None:
            return function
    return None


def _crc32c_value() -> ctypes._NamedFuncPointer:
    # The extension module stands last: the loader also finds symbols in the libraries that it depends on.
    libraries = _libraries_in("google-crc32c", r"(lib)?crc32c[^/]*\.(so[.\d]*|dylib|dll)|_crc32c\.[^/]*\.(so|pyd)")
    function = _function(sorted(libraries, key=lambda path: "/_crc32c" in path), "crc32c_value")
    if function is None:
        raise MissingLibraryError(
            "no crc32c_value in the files of google-crc32c; expected its binary wheel (Linux glibc, macOS or Windows): "
            "reinstall it with pip, without --no-binary"
        )
    return function


def _crc32() -> ctypes._NamedFuncPointer:
    function = _function(_libraries_in("deflate", r"_deflate\..*\.(so|pyd)"), "libdeflate_crc32")
    if function is None:
        function = _function(filter(None, [ctypes.util.find_library("z")]), "crc32")
    if function is None:
        raise MissingLibraryError("no libdeflate_crc32 in the wheel deflate and no zlib on this system: install zlib")
    return function


#: `uint32_t crc32c_value(const uint8_t *data, size_t length)`
CRC32C: Final = _crc32c_value()
#: `uint32_t crc32(uint32_t start, const void *data, size_t length)`
CRC32: Final = _crc32()


def extend_crc32c(crc: int, data: bytes) -> int:
    """The CRC-32C of what `crc` covers (0: nothing) followed by `data`."""
    return int(google_crc32c.extend(crc, data))


def extend_crc32(crc: int, data: bytes) -> int:
    """The CRC-32 of what `crc` covers (0: nothing) followed by `data`."""
    return zlib.crc32(data, crc)
