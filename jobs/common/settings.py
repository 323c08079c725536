"""The settings file: read once on the driver, checked, then only passed on. Command line options win over it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kidxlib.errors import UsageError
from kidxlib.policy_file import parse_toml, read_text, shown
from kidxlib.recover import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT

_YEAR_SECONDS: Final = 365 * 24 * 3600

PROJECT: Final = Path(__file__).resolve().parents[2]
SETTINGS_FILE: Final = PROJECT / "conf" / "kidx.toml"


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def _is_place(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected the path of a directory, or a URL")
    return text


Place = Annotated[str, AfterValidator(_is_place)]
Pattern = Annotated[str, AfterValidator(_is_pattern)]
#: Bytes, as Kafka checks `index.interval.bytes`; an int32.
IntervalBytes = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: Bytes; room for one entry of each index at least.
MaxIndexBytes = Annotated[int, Field(ge=12, le=2**31 - 1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BuildSettings(_Strict):
    """`[build]`: what build_index does where no option says otherwise."""

    index_dir: Place = "var/index"
    catalog: Place = "var/catalog"
    topics: Pattern = ".*"
    interval_bytes: IntervalBytes = INTERVAL_BYTES_DEFAULT
    max_index_bytes: MaxIndexBytes = MAX_INDEX_BYTES_DEFAULT
    verify_crc: bool = True
    snapshots: bool = False
    epochs: bool = False
    wave_bytes: Annotated[int, Field(ge=1, le=2**63 - 1)] = 256 * 1024**3
    wave_seconds: Annotated[int, Field(ge=1, le=_YEAR_SECONDS)] = 600
    longest_run_hours: Annotated[int, Field(ge=1, le=_YEAR_SECONDS // 3600)] = 24


class TopicSettings(_Strict):
    """`[[topic]]`: what differs for the topics whose full name matches."""

    match: Pattern
    interval_bytes: IntervalBytes | None = None
    max_index_bytes: MaxIndexBytes | None = None


class SparkSettings(_Strict):
    """`[spark]`: what the jobs tell Spark, besides `spark-defaults.conf`."""

    event_log_dir: str = ""


class Settings(_Strict):
    """The whole file."""

    build: BuildSettings = BuildSettings()
    spark: SparkSettings = SparkSettings()
    topic: tuple[TopicSettings, ...] = Field(default=(), strict=False)


def read_settings(path: Path) -> Settings:
    """Read a settings file.

    Raises:
        UsageError: it cannot be read or parsed, has an unknown key (the nearest known one is named) or a wrong value.
    """
    try:
        return Settings.model_validate(parse_toml(path, read_text(path, "settings")))
    except RecursionError as error:
        raise UsageError(f"{path}: not a settings file: its values are nested too deeply") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = [
                name for model in (BuildSettings, SparkSettings, TopicSettings, Settings) for name in model.model_fields
            ]
            nearest = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else f"; known: {', '.join(sorted(set(known)))}"
            raise UsageError(f"{path}: unknown setting {where}{hint}") from error
        raise UsageError(f"{path}: {where} = {shown(first['input'])}: {first['msg'].lower()}") from error
