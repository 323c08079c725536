"""Where the project lies that the commands are part of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The checkout, or the directory of a release, in which kidx.zip holds this module.
PROJECT: Final = next(path for path in Path(__file__).resolve().parents[2:] if path.is_dir())
SETTINGS_FILE: Final = PROJECT / "conf" / "kidx.toml"
