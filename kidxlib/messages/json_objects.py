"""Messages as the JSON that Kafka makes of them (`JsonConverterGenerator`), as Python's objects and as text."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from kidxlib.java import double_text
from kidxlib.messages.definitions import Field, Message
from kidxlib.messages.reading import Values
from kidxlib.messages.scope import Scope


def json_object(message: Message, values: Values, version: int) -> dict[str, Any]:
    """A message as Kafka's `…JsonConverter.write` gives it: the fields of a version, the tagged ones among them if they
    are not the default. Bytes are base64.

    Kafka throws where a field is set that the version lacks. Here none can be: what is written was read in the same
    version, or in a lower one.
    """
    return _struct(Scope.of(message, version), message.fields, values)


def _struct(scope: Scope, fields: Sequence[Field], values: Values) -> dict[str, Any]:
    return {
        field.name: _value(scope, field, values[field.name])
        for field in fields
        if scope.is_in(field.versions)
        and not (scope.is_in(field.tagged) and values[field.name] == scope.default(field))
    }


def _value(scope: Scope, field: Field, value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [_value(scope, field, element) for element in value]
        case dict():
            return _struct(scope.within(field), scope.fields_of(field), value)
        case _:
            return value


def json_text(value: Any) -> str:
    """JSON as Jackson writes a `JsonNode`: in one line without spaces, and no character escaped that need not be."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = double_text(value)
            return text if text[-1].isdigit() else f'"{text}"'  # JSON has no NaN and no infinity
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case list():
            return f"[{','.join(map(json_text, value))}]"
        case dict():
            return f"{{{','.join(f'{json_text(name)}:{json_text(each)}' for name, each in value.items())}}}"
        case _:
            raise TypeError(value)


_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): f"\\{escape}"
    for character, escape in {'"': '"', "\\": "\\", "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}.items()
}
