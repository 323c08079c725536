"""Compiled functions that read and copy memory by address. Callers check bounds."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kidxlib.jit.compiler import njit


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
    """Prefetch the cache line at an address, which may be invalid."""

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
    """A valid zig-zag varint, and the address after it."""
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
