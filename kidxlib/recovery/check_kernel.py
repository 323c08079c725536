"""The compiled loops that find batches and check their checksums, without recovering a log; and the CRC-32C of a whole
log, computed from the checksums of its batches without reading their bytes again (`with_batch`).

A checksum is a polynomial over GF(2), as a number whose highest bit is the coefficient of x⁰. Appended bytes multiply
it by a power of x. If the processor can multiply polynomials, two instructions do that; they also multiply by x³³,
which the table of powers divides out beforehand. Otherwise a loop over the bits multiplies.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from kidxlib.format.bytes_kernel import BYTES, int32, int64, uint8
from kidxlib.format.checksum_kernel import CRC32C_POLYNOMIAL, by_x, checksum, extended_crc32c, stored_checksum
from kidxlib.format.layouts import (
    BATCH_BYTES_MIN,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    SIZE_AT,
    V2_ATTRIBUTES_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.jit.machine import has_instructions

_ONE: Final = 1 << 31
_TAKEN_OUT: Final = 33
_Polynomials: TypeAlias = NDArray[np.uint32]


#: Whether compiled code may use the instructions that multiply polynomials and compute a CRC-32C.
HAS_INSTRUCTIONS: Final = has_instructions("pclmul", "sse4.2")


def _by_x(polynomial: int) -> int:
    return by_x(polynomial, CRC32C_POLYNOMIAL)


def _by_inverse_of_x(polynomial: int) -> int:
    """Divide by x. The coefficient of x⁰ says whether the polynomial of CRC-32C was added: it was 0 before."""
    return (polynomial ^ CRC32C_POLYNOMIAL) << 1 | 1 if polynomial & _ONE else polynomial << 1


def _product(first: int, second: int) -> int:
    product = 0
    while first:
        if first & _ONE:
            product ^= second
        first, second = first << 1 & 0xFFFFFFFF, _by_x(second)
    return product


def _products(first: _Polynomials, second: _Polynomials) -> _Polynomials:
    products = np.zeros_like(first ^ second)
    for bit in range(31, -1, -1):
        products ^= second * (first >> np.uint32(bit) & np.uint32(1))
        second = second >> np.uint32(1) ^ np.uint32(CRC32C_POLYNOMIAL) * (second & np.uint32(1))
    return products


def _powers(taken_out: int) -> _Polynomials:
    """x to the power of the bits of 0 to 255 bytes, of 0 to 255 times 256 bytes, and so on, divided by x to the power
    of `taken_out`: of shape (4, 256).
    """
    least, step = _ONE, _ONE
    for _ in range(taken_out):
        least = _by_inverse_of_x(least)
    for _ in range(8):
        step = _by_x(step)
    digits = np.empty((8, 16), np.uint32)  # for each half of a byte of the number of bytes
    for row in digits:
        power = _ONE
        for number in range(16):
            row[number] = power
            power = _product(power, step)
        step = power
    low, high = digits[::2, None, :], digits[1::2, :, None]
    return _products(_products(low, high), np.array([least], np.uint32)).reshape(4, 256)


_POWERS: Final = _powers(_TAKEN_OUT if HAS_INSTRUCTIONS else 0)


@intrinsic
def _multiply(_context, first, second):
    """The product of two polynomials of 32 bits, as 64 bits. It has a factor x³³ too many."""

    def generate(context, builder, _signature, arguments):
        word = ir.IntType(64)
        pair = ir.VectorType(word, 2)
        kind = ir.FunctionType(pair, [pair, pair, ir.IntType(8)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")  # type: ignore[no-untyped-call]
        pairs = [
            builder.insert_element(ir.Constant(pair, [0, 0]), builder.zext(argument, word), cgutils.int32_t(0))
            for argument in arguments
        ]
        product = builder.call(function, [*pairs, ir.Constant(ir.IntType(8), 0)])
        return builder.extract_element(product, cgutils.int32_t(0))

    return types.uint64(types.uint32, types.uint32), generate


def _crc32c_instruction(bits: int, operand: Any) -> Any:
    """The processor's instruction that adds a number of bits to a CRC-32C."""
    name = f"llvm.x86.sse42.crc32.{max(bits, 32)}.{bits}"
    register = ir.IntType(64 if bits == 64 else 32)

    @intrinsic
    def instruction(_context, crc, data):
        def generate(context, builder, _signature, arguments):
            kind = ir.FunctionType(register, [register, ir.IntType(bits)])
            function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
            before = builder.zext(arguments[0], register) if bits == 64 else arguments[0]
            after = builder.call(function, [before, arguments[1]])
            return builder.trunc(after, ir.IntType(32)) if bits == 64 else after

        return types.uint32(types.uint32, operand), generate

    return instruction


_take_8 = _crc32c_instruction(64, types.uint64)
_take_4 = _crc32c_instruction(32, types.uint32)
_take_1 = _crc32c_instruction(8, types.uint8)


@njit
def _times_by_loop(first, second):
    """The product of two polynomials."""
    product = np.uint32(0)
    for bit in range(31, -1, -1):
        if (first >> bit) & 1:
            product ^= second
        second = np.uint32((second >> 1) ^ (CRC32C_POLYNOMIAL if second & 1 else 0))
    return np.uint32(product)


@njit(forceinline=True)
def _times_by_instructions(first, second):
    """The product of two polynomials, times x³³. The CRC-32C of the product's eight bytes reduces it."""
    return _take_8(np.uint32(0), _multiply(first, second))  # type: ignore[call-arg]


_times = _times_by_instructions if HAS_INSTRUCTIONS else _times_by_loop


@njit(forceinline=True)
def _crc32c_before(crc, size):
    """The part of some bytes' CRC-32C in that of these bytes and the `size` bytes after them, fewer than 2³²."""
    power = np.uint32(_POWERS[0, size & 255])
    size >>= 8
    row = 1
    while size != 0:
        power = _times(power, np.uint32(_POWERS[row, size & 255]))
        size >>= 8
        row += 1
    return _times(np.uint32(crc), power)


@njit(forceinline=True)
def _with_head_by_call(crc, _data, address, at):
    """The CRC-32C of the bytes of `crc` and the first bytes of a batch, which the batch's own checksum does not
    cover.
    """
    return extended_crc32c(crc, address + at, V2_ATTRIBUTES_AT)


@njit(forceinline=True)
def _with_head_by_instructions(crc, data, _address, at):
    """Do the same with instructions. It is always 21 bytes."""
    register = _take_8(np.uint32(~crc), _word(data, at))
    register = _take_8(register, _word(data, at + 8))
    register = _take_4(register, np.uint32(_word(data, at + 16)))
    return np.uint32(~_take_1(register, uint8(data, at + 20)))


@njit(forceinline=True)
def _word(data, at):
    """Eight bytes as this kind of processor has them, the lowest first."""
    word = np.uint64(0)
    for number in range(8):
        word |= np.uint64(uint8(data, at + number)) << np.uint64(8 * number)
    return word


_with_head = _with_head_by_instructions if HAS_INSTRUCTIONS else _with_head_by_call


@njit(forceinline=True)
def with_batch(crc, data, address, at, batch_bytes, stored):
    """The CRC-32C of checked bytes: of those of `crc`, and a batch of magic 2 after them, whose checksum was found
    right.

    Args:
        data: has the batch's header from `at` on.
        address: the address of the first byte of `data`.
        stored: the batch's checksum.
    """
    return np.uint32(stored) ^ _crc32c_before(_with_head(crc, data, address, at), batch_bytes - V2_ATTRIBUTES_AT)


@njit(types.uint32(types.uint32, types.uint32, types.int64), cache=True)
def joined_crc32c(first, second, second_bytes):
    """The CRC-32C of two sections of a log in sequence, from that which `check_section` returns of each."""
    return _crc32c_before(first, second_bytes) ^ second


@njit
def _check(data, start, stop):
    address = np.int64(data.ctypes.data)
    position, crc = start, np.uint32(0)
    while position < stop and position + BATCH_BYTES_MIN <= len(data):
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        magic = np.int64(np.int8(data[position + MAGIC_AT]))
        smallest = BATCH_V2_BYTES_MIN if magic >= MAGIC_V2 else BATCH_BYTES_MIN
        if batch_bytes < smallest or position + batch_bytes > len(data):
            break
        stored = stored_checksum(data, position, magic)
        if checksum(address, position, batch_bytes, magic) != stored:
            break
        if magic >= MAGIC_V2:
            crc = with_batch(crc, data, address, position, batch_bytes, stored)
        position += batch_bytes
    return position, np.int64(crc)


@njit(types.int64(BYTES, types.int64, types.int64), **OPTIONS)
def check_batches(data, start, stop):
    """Check the checksums of the batches from `start` on. Return the position of the first batch that starts at or
    after `stop`, or of the first torn or wrong one before.

    Args:
        data: the whole log, read-only uint8.
    """
    return _check(data, start, stop)[0]


@njit(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64), **OPTIONS)  # type: ignore[no-untyped-call]
def check_section(data, start, stop):
    """Do what `check_batches` does, and also return the CRC-32C of the section, if all batches are of magic 2."""
    return _check(data, start, stop)


@njit(types.int64(BYTES, types.int64, types.int64), **OPTIONS)
def find_batch(data, start, stop):
    """Find the first position from `start` to before `stop` at which a batch of magic 2 seems to start, by its header
    and checksum. Return −1 if there is none.

    Args:
        data: the whole log, read-only uint8.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - BATCH_V2_BYTES_MIN + 1)):
        if data[position + MAGIC_AT] != MAGIC_V2:
            continue
        # Cheap conditions first: bytes amid records may look like a size of a gigabyte.
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        is_header = (
            int64(data, position) >= 0
            and BATCH_V2_BYTES_MIN <= batch_bytes <= len(data) - position
            and data[position + V2_ATTRIBUTES_AT] == 0
            and int32(data, position + V2_LAST_OFFSET_DELTA_AT) >= 0
            and int32(data, position + V2_RECORDS_COUNT_AT) >= 0
        )
        if is_header and checksum(address, position, batch_bytes, np.int64(MAGIC_V2)) == stored_checksum(
            data, position, np.int64(MAGIC_V2)
        ):
            return position
    return np.int64(-1)


@njit(types.int64(BYTES, types.int64, types.int64, types.int64, types.int64, types.int64), **OPTIONS)
def find_whole_batch(data, start, stop, left, least_offset, most_offset):
    """Find the first position from `start` to before `stop` with a batch of magic 0, 1 or 2 that has one of these
    offsets. The batch is whole and its checksum right, or it ends after these bytes but before the log's end. Return −1
    if there is none.

    Args:
        data: bytes of a log, read-only uint8.
        left: how many bytes the log has from the first byte of `data` on.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - BATCH_BYTES_MIN + 1)):
        magic = np.int64(np.int8(data[position + MAGIC_AT]))
        if magic < 0 or magic > MAGIC_V2:
            continue
        offset = int64(data, position)
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        smallest = BATCH_V2_BYTES_MIN if magic >= MAGIC_V2 else BATCH_BYTES_MIN
        if not (least_offset <= offset <= most_offset and smallest <= batch_bytes <= left - position):
            continue
        if batch_bytes > len(data) - position:
            return np.int64(position)
        if checksum(address, position, batch_bytes, magic) == stored_checksum(data, position, magic):
            return np.int64(position)
    return np.int64(-1)
