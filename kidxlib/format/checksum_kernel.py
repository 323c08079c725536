"""The checksum of a batch as compiled loops compute it, and the one in its header: CRC-32C, and CRC-32 up to magic 1.

The fastest implementation on this processor is used, measured when the process starts (`choose_checksums`). None is the
fastest everywhere. kidx's own loop (`folding`) needs instructions that x86-64 has since 2019. It needs no call, so it
is the fastest for short batches wherever it runs. For long batches, ISA-L is as fast with AVX-512; without AVX-512,
Google's may be faster. These are C functions, called through their symbols, where a Python call per batch would cost
more than the checksum. All are measured on 64 KiB, which takes a quarter of a millisecond, in each process: a kept
choice might be used on another processor. An implementation with wrong checksums is not used.

kidx's own loop multiplies without carries. A message is a polynomial over GF(2), and its checksum is the remainder
modulo the checksum's own polynomial. So a part of a message can be added to the part some bits after it, once it is
multiplied by x to the power of that distance modulo the polynomial: the message is folded, a block at a time, until 128
bits are left (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009). Nobody calls
this loop where the processor cannot multiply so.

Blocks are laid out from the message's end. The bytes before the message in the first block count as zeros, which change
nothing if a checksum starts with zero. So messages of all lengths up to a block take the same path, and the processor
has no length to guess. Kafka's checksums start with ones: a table has their effect at the end of the first block. In
numbers the highest bit is the coefficient of x⁰, as in both checksums.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kidxlib.errors import MissingLibraryError, UsageError
from kidxlib.format.bytes_kernel import int32
from kidxlib.format.checksums import CRC32, GOOGLE_CRC32C, ISAL_CRC32C
from kidxlib.format.layouts import MAGIC_AT, MAGIC_V2, V1_CRC_AT, V2_ATTRIBUTES_AT, V2_CRC_AT
from kidxlib.jit.compiler import njit
from kidxlib.jit.machine import has_instructions

CRC32C_POLYNOMIAL: Final = 0x82F63B78
CRC32_POLYNOMIAL: Final = 0xEDB88320
#: How many bytes are folded at once. Up to so many less one are read before a message, and not used.
BLOCK_BYTES: Final = 128

_ONE: Final = 1 << 31
_REGISTER: Final = 0xFFFFFFFF
_BYTE, _HALF, _WORD, _WIDE = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_LANE: Final = ir.VectorType(_WORD, 2)
#: The instructions that multiply, by the number of words in a vector; a lane has two words.
_MULTIPLICATIONS: Final = {8: "llvm.x86.pclmulqdq.512", 4: "llvm.x86.pclmulqdq.256", 2: "llvm.x86.pclmulqdq"}


def _vector_words() -> int:
    """How many words of 64 bits the processor multiplies at once; 0 if it lacks the instructions."""
    if not has_instructions("pclmul", "vpclmulqdq", "sse4.2", "avx2"):
        return 0
    return 8 if has_instructions("avx512f", "avx512bw") else 4


VECTOR_WORDS: Final = _vector_words()


def by_x(polynomial: int, modulus: int) -> int:
    """A polynomial times x."""
    return polynomial >> 1 ^ (modulus if polynomial & 1 else 0)


def _power_of_x(exponent: int, modulus: int) -> int:
    power = _ONE
    for _ in range(exponent):
        power = by_x(power, modulus)
    return power


def _shift(bits: int, modulus: int) -> tuple[int, int]:
    """The factors for the two words of a lane that is added to the lane so many bits after it. The instruction's
    product has one more factor x.
    """
    return _power_of_x(bits + 63, modulus) << 32, _power_of_x(bits - 1, modulus) << 32


def _reciprocal(modulus: int) -> int:
    """The quotient of x⁶⁴ and the polynomial of degree 32, both of 33 bits with the lowest the coefficient of x³²."""
    divisor = _straight(modulus << 1 | 1)
    rest, quotient = 1 << 64, 0
    for bit in range(32, -1, -1):
        if rest >> (bit + 32) & 1:
            rest ^= divisor << bit
            quotient |= 1 << bit
    return _straight(quotient)


def _straight(number: int) -> int:
    """33 bits, the other way round."""
    return int(f"{number:033b}"[::-1], 2)


def _starts(modulus: int) -> list[int]:
    """The checksums that start with ones, after 0, 1, … zero bytes, up to a block."""
    starts = [_REGISTER]
    for _ in range(BLOCK_BYTES):
        register = starts[-1]
        for _ in range(8):
            register = by_x(register, modulus)
        starts.append(register)
    return starts


class _Code:
    """The instructions of one checksum, as they are put into a loop that is compiled."""

    def __init__(self, builder: Any, modulus: int, vector_words: int) -> None:
        self._builder = builder
        self._modulus = modulus
        self._lanes = vector_words // 2
        self._vector = ir.VectorType(_WORD, vector_words)
        self._vectors = BLOCK_BYTES // (8 * vector_words)

    def checksum(self, address: Any, size: Any) -> Any:
        """The checksum of so many bytes at an address: a loop over blocks, which carries what the block before gave."""
        builder = self._builder
        end = builder.add(address, size)
        whole = builder.and_(builder.add(size, _WORD(BLOCK_BYTES - 1)), _WORD(-BLOCK_BYTES))
        left_out = builder.sub(whole, size)
        first = builder.sub(end, whole)
        before = builder.basic_block
        blocks, next_block, done = (
            builder.append_basic_block(f"checksum.{name}") for name in ("blocks", "next", "done")
        )
        start, parts = self._start(left_out), self._masked(first, left_out)
        builder.branch(blocks)

        builder.position_at_end(blocks)
        block, register = builder.phi(_WORD), builder.phi(_HALF)
        folded = [builder.phi(self._vector) for _ in parts]
        after = builder.add(block, _WORD(BLOCK_BYTES))
        builder.cbranch(builder.icmp_unsigned("<", after, end), next_block, done)

        builder.position_at_end(next_block)
        # What a register holds before a block counts as if the block's first bytes had been that much different.
        zero = ir.Constant(self._vector, None)
        carried = builder.insert_element(zero, builder.zext(register, _WORD), _HALF(0))
        added = [self._fold(part, 8 * BLOCK_BYTES, self._load(after, number)) for number, part in enumerate(folded)]
        added[0] = builder.xor(added[0], carried)
        builder.branch(blocks)
        for phi, at_first, then in zip(
            [block, register, *folded], [first, start, *parts], [after, _HALF(0), *added], strict=True
        ):
            phi.add_incoming(at_first, before)
            phi.add_incoming(then, next_block)

        builder.position_at_end(done)
        return builder.not_(builder.xor(register, self._register_of(self._lane_of(folded))))

    def _start(self, left_out: Any) -> Any:
        """The effect of a checksum's first ones at the end of the first block."""
        builder = self._builder
        table = ir.Constant(ir.ArrayType(_HALF, BLOCK_BYTES + 1), _starts(self._modulus)[::-1])
        pointer = cgutils.global_constant(builder, "kidx.checksum.starts", table)  # type: ignore[no-untyped-call]
        return builder.load(builder.gep(pointer, [_HALF(0), left_out]))

    def _masked(self, block: Any, left_out: Any) -> list[Any]:
        """The first block, without the bytes before the message."""
        builder = self._builder
        masks = ir.Constant(ir.ArrayType(_BYTE, 2 * BLOCK_BYTES), [0] * BLOCK_BYTES + [255] * BLOCK_BYTES)
        pointer = cgutils.global_constant(builder, "kidx.checksum.masks", masks)  # type: ignore[no-untyped-call]
        mask = builder.ptrtoint(builder.gep(pointer, [_HALF(0), builder.sub(_WORD(BLOCK_BYTES), left_out)]), _WORD)
        return [builder.and_(self._load(block, number), self._load(mask, number)) for number in range(self._vectors)]

    def _load(self, block: Any, number: int) -> Any:
        builder = self._builder
        address = builder.add(block, _WORD(number * self._vector.count * 8))
        loaded = builder.load(builder.inttoptr(address, self._vector.as_pointer()))
        loaded.align = 1
        return loaded

    def _fold(self, vector: Any, bits: int, upon: Any) -> Any:
        """Add each lane to the lane so many bits after it."""
        return self._builder.xor(self._multiplied(vector, _shift(bits, self._modulus) * self._lanes), upon)

    def _multiplied(self, vector: Any, factors: Sequence[int]) -> Any:
        """The two words of each lane, each times a factor, added up."""
        constant = ir.Constant(vector.type, list(factors))
        return self._builder.xor(*(self._product(vector, constant, words) for words in (0x00, 0x11)))

    def _product(self, first: Any, second: Any, words: int) -> Any:
        """The products of the low words (0x00) or of the high words (0x11) of all lanes."""
        kind = ir.FunctionType(first.type, [first.type, first.type, _BYTE])
        name = _MULTIPLICATIONS[first.type.count]
        function = cgutils.get_or_insert_function(self._builder.module, kind, name)  # type: ignore[no-untyped-call]
        return self._builder.call(function, [first, second, _BYTE(words)])

    def _lane_of(self, vectors: Sequence[Any]) -> Any:
        """A block, folded to one lane: first its vectors into the last vector, then that vector's lanes into its last
        lane.
        """
        builder = self._builder
        vector = vectors[-1]
        for after, earlier in enumerate(reversed(vectors[:-1]), 1):
            vector = self._fold(earlier, 64 * self._vector.count * after, vector)
        distances = [128 * after for after in range(self._lanes - 1, 0, -1)]
        moved = self._multiplied(vector, [word for bits in distances for word in _shift(bits, self._modulus)] + [0, 0])
        lane = self._lane(vector, self._lanes - 1)
        for number in range(self._lanes - 1):
            lane = builder.xor(lane, self._lane(moved, number))
        return lane

    def _lane(self, vector: Any, number: int) -> Any:
        words = ir.Constant(ir.VectorType(_HALF, 2), [2 * number, 2 * number + 1])
        return self._builder.shuffle_vector(vector, vector, words)

    def _register_of(self, lane: Any) -> Any:
        """128 bits times x³², modulo the polynomial: what a checksum's register holds after them."""
        builder = self._builder
        words = [builder.extract_element(lane, _HALF(number)) for number in (0, 1)]
        if self._modulus == CRC32C_POLYNOMIAL:  # which the processor divides by itself
            kind = ir.FunctionType(_WORD, [_WORD, _WORD])
            name = "llvm.x86.sse42.crc32.64.64"
            function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
            return builder.trunc(
                builder.call(function, [builder.call(function, [_WORD(0), words[0]]), words[1]]), _HALF
            )
        # The earlier word comes to lie upon the later one, then the 32 bits that are left of it; 64 bits are left, of
        # which a quotient times the polynomial is taken away (Barrett).
        powers = [_power_of_x(exponent, self._modulus) << 32 for exponent in (95, 63)]
        later = builder.lshr(builder.shl(builder.zext(words[1], _WIDE), _WIDE(64)), _WIDE(32))
        rest = builder.xor(self._wide_product(words[0], powers[0]), later)
        last = self._wide_product(builder.trunc(rest, _WORD), powers[1])
        number = builder.trunc(builder.lshr(builder.xor(rest, last), _WIDE(64)), _WORD)
        low = _WORD(_REGISTER)
        quotient = builder.and_(self._low_product(builder.and_(number, low), _reciprocal(self._modulus)), low)
        taken = self._low_product(quotient, self._modulus << 1 | 1)
        return builder.trunc(builder.lshr(builder.xor(number, taken), _WORD(32)), _HALF)

    def _wide_product(self, word: Any, factor: int) -> Any:
        builder = self._builder
        lane = builder.insert_element(ir.Constant(_LANE, None), word, _HALF(0))
        return builder.bitcast(self._product(lane, ir.Constant(_LANE, [factor, 0]), 0x00), _WIDE)

    def _low_product(self, word: Any, factor: int) -> Any:
        return self._builder.trunc(self._wide_product(word, factor), _WORD)


def folding(modulus: int) -> Any:
    """A function for compiled code: the checksum of `size` bytes, at least one, at an address. As many bytes before it
    as fill up a block are read, too.

    Args:
        modulus: the polynomial, without x³².
    """

    @intrinsic
    def checksum(_context: Any, address: Any, size: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return _Code(builder, modulus, VECTOR_WORDS).checksum(*arguments)

        return types.uint32(types.int64, types.int64), generate

    return checksum


@njit
def _no_folding(_address, _size):
    return 0


#: Of an address and a number of bytes, as `folding` says.
_fold_crc32c: Final = folding(CRC32C_POLYNOMIAL) if VECTOR_WORDS else _no_folding
_fold_crc32: Final = folding(CRC32_POLYNOMIAL) if VECTOR_WORDS else _no_folding


@njit(types.uint32(types.int64, types.int64), cache=True, nogil=True)
def folded_crc32c(address, size):
    """For Python to call: a CRC-32C."""
    return _fold_crc32c(address, size)


@njit(types.uint32(types.int64, types.int64), cache=True, nogil=True)
def folded_crc32(address, size):
    """For Python to call: a CRC-32."""
    return _fold_crc32(address, size)


#: The environment variable that names the implementation to use.
FORCED_BY: Final = "KIDX_CHECKSUMS"
FOLDING: Final = "folding"
ISAL: Final = "isal"
GOOGLE: Final = "google"

_PATTERN: Final = bytes(range(256)) * 256
#: By number of bytes: the CRC-32C and the CRC-32 of the first bytes of the pattern, as computed with tables of 256
#: numbers and by all candidates.
_CHECKED: Final = {
    1: (0x527D5351, 0xD202EF8D),
    32: (0x46DD794E, 0x91267E8A),
    333: (0x14A44C37, 0xC94237FC),
    4_099: (0x7FC6F40F, 0xF869C143),
    len(_PATTERN): (0xA224AF3D, 0xB11DE6A1),
}
_ROUNDS: Final = 4
#: How many times as fast as the earlier candidates a candidate must be.
_WORTH_A_CHANGE: Final = 1.1


class Checksums(NamedTuple):
    """Two functions of an address and a number of bytes, at least one. They may also read a block before the bytes."""

    crc32c: Callable[[int, int], int]
    crc32: Callable[[int, int], int]


def checksum_candidates() -> Mapping[str, Checksums]:
    """The implementations of checksums for compiled loops on this machine, by name; if several are as fast, the first
    is used.
    """
    functions = {FOLDING: Checksums(folded_crc32c, folded_crc32)} if VECTOR_WORDS else {}
    functions[ISAL] = Checksums(lambda address, size: ~ISAL_CRC32C(address, size, 0xFFFFFFFF) & 0xFFFFFFFF, _isal_crc32)
    if (extend := GOOGLE_CRC32C) is not None:
        functions[GOOGLE] = Checksums(lambda address, size: int(extend(0, address, size)), _isal_crc32)
    return functions


def _isal_crc32(address: int, size: int) -> int:
    return int(CRC32(0, address, size))


def choose_checksums(functions: Mapping[str, Checksums], forced: str | None = os.environ.get(FORCED_BY)) -> str:
    """The name of the implementation of checksums that compiled loops use, from `checksum_candidates`; `forced` is the
    name that the user sets.
    """
    if forced and forced not in functions:
        raise UsageError(f"{FORCED_BY}: found {forced!r}, expected one of {', '.join(functions)}")
    pattern = ctypes.create_string_buffer(bytes(BLOCK_BYTES) + _PATTERN)
    address = ctypes.addressof(pattern) + BLOCK_BYTES
    asked = {forced: functions[forced]} if forced else functions
    right = {name: checksums for name, checksums in asked.items() if _is_right(checksums, address)}
    if not right:
        raise MissingLibraryError(
            f"{', '.join(asked)}: other checksums than the known ones of up to {len(_PATTERN):,} bytes; reinstall the "
            f"library, or name another one in {FORCED_BY}"
        )
    chosen, best = "", float("inf")
    for name, checksums in right.items():
        seconds = min(_seconds(checksums, address) for _ in range(_ROUNDS))
        if seconds * _WORTH_A_CHANGE < best:
            chosen, best = name, seconds
    return chosen


def _is_right(checksums: Checksums, address: int) -> bool:
    return all(
        (checksums.crc32c(address, size), checksums.crc32(address, size)) == known for size, known in _CHECKED.items()
    )


def _seconds(checksums: Checksums, address: int) -> float:
    start = time.perf_counter()
    checksums.crc32c(address, len(_PATTERN))
    return time.perf_counter() - start


CHOSEN: Final = choose_checksums(checksum_candidates())


_NUMBERS: Final = {ISAL: 0, GOOGLE: 1, FOLDING: 2}
_GOOGLE: Final = _NUMBERS[GOOGLE]
_FOLDING: Final = _NUMBERS[FOLDING]
_CHOSEN: Final = ctypes.c_uint8(_NUMBERS[CHOSEN])

# A compiled function loaded from numba's cache knows these symbols by name, so they must be there before any is loaded.
# The choice is such a symbol, too, and no constant, which would stay in what is compiled.
binding.add_symbol("kidx_isal_crc32c", ctypes.cast(ISAL_CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_google_crc32c", ctypes.cast(GOOGLE_CRC32C or ISAL_CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_chosen_checksum", ctypes.addressof(_CHOSEN))
binding.add_symbol("kidx_crc32", ctypes.cast(CRC32, ctypes.c_void_p).value)
_isal_crc32c = types.ExternalFunction("kidx_isal_crc32c", types.uint32(types.uintp, types.int32, types.uint32))
_google_crc32c = types.ExternalFunction("kidx_google_crc32c", types.uint32(types.uint32, types.uintp, types.uintp))
_gzip_crc32 = types.ExternalFunction("kidx_crc32", types.uint32(types.uint32, types.uintp, types.uint64))


@intrinsic
def _chosen(_context):
    """The number of the implementation that this process uses."""

    def generate(_context, builder, _signature, _arguments):
        kind, name = ir.IntType(8), "kidx_chosen_checksum"
        known = builder.module.globals.get(name)
        return builder.load(cgutils.add_global_variable(builder.module, kind, name) if known is None else known)  # type: ignore[no-untyped-call]

    return types.uint8(), generate


@njit(forceinline=True)
def stored_checksum(data, at, magic):
    """The checksum in a batch's header; zero-extended, as the computed one."""
    return np.int64(np.uint32(int32(data, at + (V2_CRC_AT if magic >= MAGIC_V2 else V1_CRC_AT))))


@njit(forceinline=True)
def checksum(address, at, batch_bytes, magic):
    """The checksum of a whole batch, as compiled loops compute it: CRC-32C from magic 2 on, CRC-32 before.

    Args:
        address: of the first byte that may be read.
        at: how many bytes after it the batch starts.
    """
    covered_at = V2_ATTRIBUTES_AT if magic >= MAGIC_V2 else MAGIC_AT
    start, size = address + at + covered_at, batch_bytes - covered_at
    if _chosen() == _FOLDING and at + covered_at >= BLOCK_BYTES:  # type: ignore[call-arg]
        return np.int64(_fold_crc32c(start, size) if magic >= MAGIC_V2 else _fold_crc32(start, size))
    if magic >= MAGIC_V2:
        return np.int64(extended_crc32c(np.uint32(0), start, size))
    return np.int64(_gzip_crc32(np.uint32(0), np.uintp(start), np.uint64(size)))


@njit(forceinline=True)
def extended_crc32c(crc, address, size):
    """The CRC-32C of what `crc` covers (0: nothing) followed by the bytes at an address, at most 2 GiB less one: by a
    library, as these are few bytes, or come in pieces.
    """
    if _chosen() == _GOOGLE:  # type: ignore[call-arg]
        return np.uint32(_google_crc32c(np.uint32(crc), np.uintp(address), np.uintp(size)))
    return np.uint32(~_isal_crc32c(np.uintp(address), np.int32(size), np.uint32(~crc)))
