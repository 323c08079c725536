"""How `kidx dump` ends: options that it does not know, readers that go, disks that are full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.trees import write_log
from tests.support.dump import RECORDS, run
from tests.support.logs import encoded
from tests.support.logs.golden import SAMPLES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path, 7, encoded.batch_v2(RECORDS))


def test_no_decoder_classes(log: Path) -> None:
    result = run("--key-decoder-class", "com.example.Decoder", str(log))
    assert isinstance(result.exception, UsageError)
    assert "com.example.Decoder: expected text, hex, json, int, long or one of" in str(result.exception)


def test_a_reader_that_has_seen_enough(log: Path) -> None:
    """`| head -1`: no word, and no fault."""
    log.write_bytes(encoded.batch_v2(RECORDS) * 5_000)
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "dump", str(log))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as kidx:
        assert kidx.stdout is not None
        assert kidx.stderr is not None
        assert kidx.stdout.readline() == f"Dumping {log}\n"
        kidx.stdout.close()
        assert kidx.stderr.read() == ""
    assert kidx.returncode == ExitCode.OK


def test_a_gate_is_not_passed_by_a_reader_that_has_seen_enough() -> None:
    """The exit code of a program that SIGPIPE ends, whatever was found."""
    reader, writer = os.pipe()
    os.close(reader)
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "verify", str(SAMPLES))
    with os.fdopen(writer, "wb") as closed:
        kidx = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert kidx.returncode == ExitCode.OUTPUT_CLOSED == 128 + signal.SIGPIPE, kidx.stderr


def test_a_full_disk(log: Path) -> None:
    command = (sys.executable, "-c", "from kidxlib.cli.main import main; main()", "dump", str(log))
    with open("/dev/full", "wb") as full:
        kidx = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (kidx.returncode, kidx.stderr) == (ExitCode.FAILED, "error: standard output: No space left on device\n")
