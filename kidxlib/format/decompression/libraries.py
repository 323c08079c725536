"""The libraries that compiled loops decompress with, and their memory for each thread."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Final

from llvmlite import binding

from kidxlib.format.c_library import c_library

#: The backport is for Pythons without zstd. The zstd of later ones may be hidden within the interpreter.
_OF_ZSTD: Final = ("backports.zstd", "_zstd") if sys.version_info < (3, 14) else ("zstandard", "_cffi")
_ZSTD: Final = c_library(*_OF_ZSTD, "ZSTD_decompressDCtx")
_LZ4: Final = c_library("lz4", "_block", "LZ4_decompress_safe")
_DEFLATE: Final = c_library("deflate", "_deflate", "libdeflate_gzip_decompress_ex")

# A compiled function loaded from numba's cache calls these symbols by name, so they must be known before any is loaded.
for _symbol, _function in {
    "kidx_zstd_decompress": _ZSTD.ZSTD_decompressDCtx,
    "kidx_lz4_decompress": _LZ4.LZ4_decompress_safe,
    "kidx_gzip_decompress": _DEFLATE.libdeflate_gzip_decompress_ex,
}.items():
    binding.add_symbol(_symbol, ctypes.cast(_function, ctypes.c_void_p).value)

for _function in (_ZSTD.ZSTD_createDCtx, _DEFLATE.libdeflate_alloc_decompressor):
    _function.restype = ctypes.c_void_p
for _function in (_ZSTD.ZSTD_freeDCtx, _DEFLATE.libdeflate_free_decompressor):
    _function.argtypes = [ctypes.c_void_p]


class Decompressors:
    """The working memory that zstd and libdeflate get with each call. One thread may use it at a time. It is freed with
    this object.

    Attributes:
        zstd, gzip: the addresses.
    """

    def __init__(self) -> None:
        self.zstd: int = _allocated(_ZSTD.ZSTD_createDCtx())
        weakref.finalize(self, _ZSTD.ZSTD_freeDCtx, self.zstd)
        self.gzip: int = _allocated(_DEFLATE.libdeflate_alloc_decompressor())
        weakref.finalize(self, _DEFLATE.libdeflate_free_decompressor, self.gzip)


def _allocated(address: int | None) -> int:
    if address is None:
        raise MemoryError
    return address
