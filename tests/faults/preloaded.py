"""Imported once by the server that the processes of these tests are forked from: what each would else do first.

They find the library imported, also what `kidx` imports only once a command is called, and its kernels loaded.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import tempfile
from pathlib import Path

from kidxlib import commands, operations
from kidxlib.engine.without_pandas import import_no_pandas


def _load() -> None:
    """A build of a small log calls the kernels."""
    import_no_pandas()  # as the command does it: before anything else
    from tests.faults import children
    from tests.faults.trees import small_log, write_log

    for package in (commands, operations):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    _, send = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory, send:
        write_log(Path(directory, "kafka-logs", "topic-0"), 0, small_log())
        children.build(send, Path(directory, "kafka-logs"), Path(directory, "index"))


_load()
