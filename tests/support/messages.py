"""Kafka's messages with random values."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import Any, Final

from kidxlib.messages.definitions import Field, MessageDefinition
from kidxlib.messages.interpreter import MessageScope, Values

#: The size in bytes of each integer type, and whether it is signed.
_INTEGERS: Final = {
    "int8": (1, True),
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "uint32": (4, False),
    "int64": (8, True),
}
_TEXTS: Final = ("", "a", "consumer", "größer\u2028", '"quoted\\"', "\0\x1f\n\t\x7f", "\U0001f600", "x" * 200)
_DOUBLES: Final = (0.0, -0.0, 1.5, 1e7, 123456.75, 0.001, 0.00025, 1e300, float("nan"), float("inf"))


def random_values(message: MessageDefinition, version: int, rng: random.Random) -> Values:
    """Values of all fields; those that the version lacks have their defaults."""
    return _random_struct(MessageScope.of(message, version), message.fields, rng)


def _random_struct(scope: MessageScope, fields: Sequence[Field], rng: random.Random) -> Values:
    return {
        field.name: _random(scope, field, rng) if scope.is_in(field.versions) else scope.default(field)
        for field in fields
    }


def _random(scope: MessageScope, field: Field, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        default = scope.default(field)
        if default is not None or scope.is_in(field.nullable):
            return default
    if scope.is_in(field.nullable) and rng.random() < 0.2:
        return None
    if field.element_type is not None:
        return [_random_value(scope, field, field.element_type, rng) for _ in range(rng.randrange(4))]
    return _random_value(scope, field, field.type, rng)


def _random_value(scope: MessageScope, field: Field, kind: str, rng: random.Random) -> Any:
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_TEXTS)
        case "bytes":
            return rng.randbytes(rng.randrange(5))
        case "uuid":
            return base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:-2]
        case "float64":
            return rng.choice(_DOUBLES)
        case _ if kind in _INTEGERS:
            size, signed = _INTEGERS[kind]
            bits = rng.choice((3, 8 * size))
            return int.from_bytes((rng.getrandbits(bits)).to_bytes(size), signed=signed)
        case _:
            return _random_struct(scope.within(field), scope.fields_of(field), rng)
