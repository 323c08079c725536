"""Reads TOML files of users and checks them by a pydantic model; errors name the key."""

from __future__ import annotations

import difflib
import io
import logging
import re
import stat
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from kidxlib.errors import UsageError

_log = logging.getLogger(__name__)

#: The largest file.
_BYTES_MAX: Final = 64 * 1024 * 1024
#: The most characters of a value in a message: Python 3.13 writes values that are nested thousands deep.
_SHOWN_MAX: Final = 1_000
LONG_MAX: Final = 2**63 - 1


class TomlTable(BaseModel):
    """A table of a TOML file. Its keys are the fields, or their aliases.

    Keys may contain Kafka's dots. In TOML, an unquoted `retention.ms` is a table `retention` with a key `ms`; both
    forms are read.

    Attributes:
        gone: keys of earlier releases. A file that has one is read, with a warning.
    """

    gone: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, table: object) -> object:
        """The table with dotted keys, each of which must be known and given once."""
        if not isinstance(table, dict):
            return table
        known = [field.alias or name for name, field in cls.model_fields.items()]
        flat: dict[str, Any] = {}
        for key, value in _flat(table, known):
            if key in cls.gone:
                _log.warning("%s: a key of earlier releases, which does nothing any more; leave it out", key)
                continue
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(sorted(known))}"
                raise PydanticCustomError("key", "{problem}", {"key": key, "problem": f"unknown key; {hint}"})
            if key in flat:
                raise PydanticCustomError("key", "{problem}", {"key": key, "problem": "given twice; keep one of them"})
            flat[key] = value
        return flat

    def given(self) -> dict[str, Any]:
        """The values that the TOML file gives, by field."""
        return {name: value for name, value in self if name in self.model_fields_set}


def _flat(table: Mapping[str, Any], known: Collection[str], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = above + name
        if key not in known and isinstance(value, dict) and any(name.startswith(f"{key}.") for name in known):
            yield from _flat(value, known, f"{key}.")
        else:
            yield key, value


def expected(text: str) -> WrapValidator:
    """A validator of a TOML value, whose error says what was expected."""

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except (ValueError, RecursionError, UsageError) as error:
            raise ValueError(f"expected {text}") from error

    return WrapValidator(check)


def pattern(value: object) -> re.Pattern[str]:
    """The regular expression that a value of a TOML file is."""
    try:
        return re.compile(str(value))
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a regular expression ({error})") from error


Pattern = Annotated[re.Pattern[str], PlainValidator(pattern)]

_Model = TypeVar("_Model", bound=BaseModel)


def parse_toml(path: Path, text: str, model: type[_Model]) -> _Model:
    """Parse the text of a TOML file, and check it by a model."""
    try:
        return model.model_validate(_parse(path, text))
    except ValidationError as error:
        raise UsageError(f"{path}: {_what_is_wrong(error)}") from error


def _what_is_wrong(error: ValidationError) -> str:
    """The message for the first wrong key: what was found there, and what was expected."""
    first = error.errors()[0]
    where, context = _place(first["loc"]), first.get("ctx", {})
    match first["type"]:
        case "key":
            return f"{_place((*first['loc'], context['key']))}: {context['problem']}"
        case "missing":
            return f"{where}: missing; each such table needs it"
        case "value_error":
            problem = str(context["error"])
        case "model_type":
            problem = "expected a table"
        case "dict_type":
            problem = f"expected tables [{where}.NAME]"
        case "list_type" | "tuple_type":
            problem = f"expected tables [[{where}]]"
        case _:
            problem = first["msg"].replace("Input should be", "expected to be")
    return f"{where} = {_shown(first['input'])}; {problem}"


def _place(parts: tuple[str | int, ...]) -> str:
    """The path to a key in words: names joined with dots, and the numbers of tables in arrays, from 1 on."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f" {part + 1}:"
        else:
            name = part if re.fullmatch(r"[\w.-]+", part) else repr(part)
            text += f"{(' ' if text.endswith(':') else '.') if text else ''}{name}"
    return text.removesuffix(":")


def _shown(value: object) -> str:
    """A value in a message, on one line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # ValueError: a hexadecimal number with too many digits
        return "…"
    if len(text) <= _SHOWN_MAX:
        return text
    return f"{text[:_SHOWN_MAX]}…" if isinstance(value, str) else "…"


def read_toml_text(path: Path, what: str = "policies") -> str:
    """Read the text of a user's TOML file; `what` names the expected content in messages."""
    try:
        is_pipe, content = stat.S_ISFIFO(path.stat().st_mode), b""
        if not is_pipe:
            with path.open("rb") as file:
                content = file.read(_BYTES_MAX + 1)  # a device, such as /dev/zero, has no size and no end
        if is_pipe or len(content) > _BYTES_MAX:
            raise UsageError(
                f"{path}: no file of {what}: a pipe, or more than {_BYTES_MAX:,} bytes; give a regular file"
            )
        return io.TextIOWrapper(io.BytesIO(content), "utf-8").read()  # converts line ends as for a text file
    except OSError as error:
        raise UsageError(f"{path}: cannot read the {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start}: not UTF-8, expected a TOML file") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"{path}: a number of more than {sys.get_int_max_str_digits():,} digits, expected fewer"
        ) from error
    except RecursionError as error:
        raise UsageError(
            f"{path}: its values are nested too deeply, expected the keys of conf/kidx.toml or of a policy"
        ) from error
