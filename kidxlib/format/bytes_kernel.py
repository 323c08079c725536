"""Compiled functions on bytes: they read big-endian numbers and the zig-zag varints of records (`ByteUtils`), and copy;
and Java's sum of such numbers.

Some take an array and a position in it, others an address in memory. Callers check bounds, but for varints in arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kidxlib.jit.compiler import njit

#: The types of arguments: bytes to read, and numbers to write.
BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
LONGS: Final = types.Array(types.int64, 1, "C")

UNDERFLOW: Final = -1
TOO_LONG: Final = -2


@njit(forceinline=True)
def uint8(data, at):
    """The byte at a position. The position is made unsigned: for a signed one the compiler would add a check for
    negative numbers.
    """
    return data[np.uintp(at)]


@njit(forceinline=True)
def int16(data, at):
    return np.int16((np.uint16(uint8(data, at)) << 8) | uint8(data, at + 1))


@njit(forceinline=True)
def int32(data, at):
    value = (
        (np.uint32(uint8(data, at)) << 24)
        | (np.uint32(uint8(data, at + 1)) << 16)
        | (np.uint32(uint8(data, at + 2)) << 8)
        | uint8(data, at + 3)
    )
    return np.int32(value)


@njit(forceinline=True)
def int64(data, at):
    high = np.int64(int32(data, at))
    return (high << 32) | np.int64(np.uint32(int32(data, at + 4)))


@njit(forceinline=True)
def wrapping_sum(first, second):
    """The sum of two numbers, wrapped as in Java. For signed numbers the compiler would assume that none wraps."""
    return np.int64(np.uint64(first) + np.uint64(second))


@njit
def read_varint(data, at, end):
    """`ByteUtils.readVarint`: the value and the byte after it; `UNDERFLOW` or `TOO_LONG` in place of that byte."""
    value = np.uint32(0)
    for number in range(5):
        if at >= end:
            return np.int64(0), np.int64(UNDERFLOW)
        byte = np.uint32(data[at])
        at += 1
        if number == 4:
            if byte >= 128:
                return np.int64(0), np.int64(TOO_LONG)
            value |= byte << np.uint32(28)
            break
        value |= (byte & np.uint32(127)) << np.uint32(7 * number)
        if byte < 128:
            break
    value = np.uint32(value)  # four bits of the fifth byte count, as in Java; the compiler keeps more
    return np.int64(np.int32((value >> np.uint32(1)) ^ (np.uint32(0) - (value & np.uint32(1))))), np.int64(at)


@njit
def varlong(data, at, end):
    """`ByteUtils.readVarlong`: the value and the byte after it; `UNDERFLOW` or `TOO_LONG` in place of that byte."""
    value = np.uint64(0)
    for number in range(10):
        if at >= end:
            return np.int64(0), np.int64(UNDERFLOW)
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(127)) << np.uint64(7 * number)
        if byte < 128:
            return np.int64((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))), np.int64(at)
    return np.int64(0), np.int64(TOO_LONG)


@njit
def skip_bytes(data, at, end):
    """Skip a varint, and as many bytes as it says: their length, where they start, and the position after them or an
    error below 0.
    """
    size, start = read_varint(data, at, end)
    if start < 0:
        return size, start, start
    if size > end - start:
        return size, start, np.int64(UNDERFLOW)
    return size, start, start + max(size, 0)


@njit
def skip_headers(data, at, end):
    """Skip a record's headers (`DefaultRecord.readHeaders`): the position after their bytes, or an error below 0."""
    headers, at = read_varint(data, at, end)
    if at < 0:
        return at
    if headers < 0 or headers > end - at:
        return np.int64(UNDERFLOW)
    for _ in range(headers):
        key_bytes, _, at = skip_bytes(data, at, end)
        if at < 0 or key_bytes < 0:
            return np.int64(UNDERFLOW)
        _, _, at = skip_bytes(data, at, end)
        if at < 0:
            return at
    return at


@intrinsic
def copy_bytes(_context, target, source, size):
    """Copy bytes between addresses that do not overlap."""

    def generate(context, builder, _signature, arguments):
        to, of = (builder.inttoptr(address, cgutils.voidptr_t) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def copy_16_bytes(_context, target, source):
    """Copy 16 bytes between addresses with two instructions: all are read before any is written."""

    def generate(context, builder, _signature, arguments):
        pointer = ir.VectorType(ir.IntType(8), 16).as_pointer()
        to, of = (builder.inttoptr(address, pointer) for address in arguments)
        value = builder.load(of, align=1)
        builder.store(value, to, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def prefetch(_context, address):
    """Prefetch the cache line of the bytes at an address, which may be invalid."""

    def generate(context, builder, _signature, arguments):
        number = cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        to_read, to_all_caches, data = number(0), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], cgutils.voidptr_t), to_read, to_all_caches, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def as_pointer(_context, address):
    """An address as `numba.carray` takes it: the array must not outlive the memory."""

    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic
def _byte_at(_context, address):
    """The byte at an address."""

    def generate(context, builder, _signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))

    return types.uint8(types.int64), generate


@njit
def varint_at(address):
    """The value of a valid zig-zag varint in the bytes at an address, and the address after it."""
    value, shift = np.uint32(0), np.uint32(0)
    while True:
        byte = np.uint32(_byte_at(address))  # type: ignore[call-arg]
        address += 1
        value |= (byte & np.uint32(127)) << shift
        shift += np.uint32(7)
        if byte < 128:
            value = np.uint32(value)
            return np.int64(np.int32((value >> np.uint32(1)) ^ (np.uint32(0) - (value & np.uint32(1))))), address


@njit
def int16_at(address):
    value = np.int64(0)
    for number in range(2):
        value = value << 8 | _byte_at(address + number)  # type: ignore[call-arg]
    return np.int16(value)
