"""Signals amid work: it is asked to stop once, and never within a handler."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

#: Signals itself while it holds the lock that `stop` takes, and looks how often that was called.
_STOPPING: Final = """
import os, signal, sys, threading, time
from kidxlib.terminal.interrupts import handled, stopping
from kidxlib.terminal.interrupts import Interrupted

lock, calls, context = threading.Lock(), [], "within"

def stop():
    calls.append(context)
    if sys.argv[1] == "fails" and len(calls) == 1:
        raise OSError("busy")
    assert lock.acquire(timeout=5), "it waits for itself"
    time.sleep(0.5)
    lock.release()

with handled(for_good=True):
    try:
        with stopping(stop):
            with lock:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)
            time.sleep(1)
        print("not interrupted")
    except Interrupted:
        context = "after"
        time.sleep(0.5)
        print(*calls)
"""


@pytest.mark.parametrize(("how", "calls"), [("works", "within\n"), ("fails", "within within\n")])
def test_work_is_asked_to_stop_once_and_never_by_a_handler(how: str, calls: str) -> None:
    """A handler would wait for what it interrupted, or another one for it. Where it fails it is asked again."""
    ended = subprocess.run(
        [sys.executable, "-c", _STOPPING, how], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, calls), ended.stderr


#: Signals itself amid a call of a library, which goes on for a moment after it.
_WAITING: Final = """
import os, signal, time, types
from kidxlib.terminal.interrupts import handled, waiting_for
from kidxlib.terminal.interrupts import Interrupted

library = types.ModuleType("library")
exec("def call(do):\\n    do()\\n    print('done')", library.__dict__)

def do():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)

with handled(for_good=True):
    try:
        with waiting_for("library"):
            library.call(do)
        print("not interrupted")
    except Interrupted:
        print("interrupted")
"""


def test_a_call_that_is_waited_for_is_not_left_half_done() -> None:
    """As that which starts Spark's JVM: what it was to clean up or to read would be missing."""
    ended = subprocess.run([sys.executable, "-c", _WAITING], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "done\ninterrupted\n"), ended.stderr
