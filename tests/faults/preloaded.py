"""Imported once by the server that the processes of these tests are forked from: what each would else do first.

They find the library imported, also what `kidx` imports only once a command is called, and its kernels loaded.
"""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
from pathlib import Path
from typing import Final

from tests.faults import children
from tests.faults.trees import small_log, write_log

_COMMANDS: Final = ("build", "compact", "verify")


def _load() -> None:
    """A build of a small log calls the kernels."""
    for name in _COMMANDS:
        importlib.import_module(f"kidxlib.cli.{name}")
    _, send = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory, send:
        write_log(Path(directory, "kafka-logs", "topic-0"), 0, small_log())
        children.build(send, Path(directory, "kafka-logs"), Path(directory, "index"))


_load()
