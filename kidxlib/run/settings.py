"""The settings file, read and checked once, on the driver. Command line options win over it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from kidxlib.terminal.options import SETTINGS_FILE
from kidxlib.text.toml_file import TomlTable, parse_toml, pattern, read_toml_text

_YEAR_SECONDS: Final = 365 * 24 * 3600


def _is_pattern(text: str) -> str:
    pattern(text)
    return text


def _is_place(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected the path of a directory, or a URL")
    return text


Place = Annotated[str, AfterValidator(_is_place)]
Pattern = Annotated[str, AfterValidator(_is_pattern)]
#: Bytes, as Kafka checks `index.interval.bytes`; an int32.
IntervalBytes = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: Bytes; at least room for one entry of each index.
MaxIndexBytes = Annotated[int, Field(ge=12, le=2**31 - 1)]


class BuildSettings(TomlTable):
    """`[build]`: defaults of build_index's options."""

    index_dir: Place = "var/index"
    catalog: Place = "var/catalog"
    topics: Pattern = ".*"
    interval_bytes: IntervalBytes | None = None  # each topic's own, where that is known, else Kafka's default
    max_index_bytes: MaxIndexBytes | None = None
    verify_crc: bool = True
    snapshots: bool = False
    epochs: bool = False
    # Both limits are needed. Seconds bound what has to be read again after a kill. Bytes bound what a fast cluster
    # stages before it is recorded, and the size of a wave if the estimated rate is wrong.
    wave_bytes: Annotated[int, Field(ge=1, le=2**63 - 1)] = 256 * 1024**3
    wave_seconds: Annotated[int, Field(ge=1, le=_YEAR_SECONDS)] = 600
    longest_run_hours: Annotated[int, Field(ge=1, le=_YEAR_SECONDS // 3600)] = 24
    driver_listing_max: Annotated[int, Field(ge=0, le=2**63 - 1)] = 2_000_000


class TopicSettings(TomlTable):
    """`[[topic]]`: settings for the topics whose full name matches."""

    match: Pattern
    interval_bytes: IntervalBytes | None = None
    max_index_bytes: MaxIndexBytes | None = None


class SparkSettings(TomlTable):
    """`[spark]`: how the jobs use Spark, besides `spark-defaults.conf`."""

    gone = ("commits", "driver_rows_max")
    event_log_dir: str = ""


class TablesSettings(TomlTable):
    """`[tables]`: the catalog's tables after a build."""

    optimize: bool = True
    small_files_max: Annotated[int, Field(ge=1, le=100_000)] = 20
    optimize_bytes_max: Annotated[int, Field(ge=1, le=2**63 - 1)] = 1024**3


class Settings(TomlTable):
    """The settings file."""

    build: BuildSettings = BuildSettings()
    tables: TablesSettings = TablesSettings()
    spark: SparkSettings = SparkSettings()
    topic: tuple[TopicSettings, ...] = Field(default=(), strict=False)

    def of_topic(self, name: str) -> TopicSettings:
        """The first entry of the settings file that matches a topic's name; an empty one if none does."""
        matching = (entry for entry in self.topic if re.fullmatch(entry.match, name))
        return next(matching, TopicSettings(match=""))


def read_settings(path: Path) -> Settings:
    """Read a settings file. The default file may be missing, as in an installed package."""
    if path == SETTINGS_FILE and not path.exists():
        return Settings()
    return parse_toml(path, read_toml_text(path, "settings"), Settings)
