"""`kidx recover --truncate` that is killed at any step: a broker, and the next run, come to the same as without it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.cli.main import kidx as kidx_command
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SNAPSHOT_SUFFIX
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import Ended, end, kidx, start_kidx
from tests.support.cluster_metadata import write_checkpoints
from tests.support.files import tree
from tests.support.logs import golden

_KEPT: Final = "kept"
_STEPS: Final = "steps"
#: A kidx that kills itself and its workers just before it changes a file for the so-manieth time. It writes down how
#: often it did.
_KILLED: Final = """
import os, signal, sys, threading
import kidxlib.operations.recover.recover, kidxlib.terminal.run_command
from kidxlib.cli.main import main
last = int(os.environ.pop("LAST_STEP"))
count = os.open(os.environ.pop("STEPS_FILE"), os.O_WRONLY | os.O_CREAT, 0o644)
taken, one_at_a_time = 0, threading.RLock()
changes = {"os.mkdir", "os.rename", "os.remove", "os.truncate", "os.chown", "os.chmod"}
def step(event, arguments):
    global taken
    if event in changes or event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        with one_at_a_time:
            taken += 1
            os.pwrite(count, b"%d" % taken, 0)
            if taken == last:
                os.killpg(0, signal.SIGKILL)
sys.addaudithook(step)
main()
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as a broker's log dir after a crash: a torn end, zeros, and a batch amid the log of a partition with
    several segments. Index files and a snapshot are missing.
    """
    log_dir = tmp_path_factory.mktemp("recover-kills") / "logs"
    shutil.copytree(golden.SAMPLES, log_dir)
    shutil.rmtree(log_dir / "compacted-0")  # its offsets have gaps, over which nothing tells of the producers
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_checkpoints(log_dir)
    built = CliRunner().invoke(kidx_command, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0, built.output
    torn, zeros = (sorted((log_dir / name).glob(f"*{LOG_SUFFIX}"))[-1] for name in ("append-time-0", "plain-zstd-0"))
    os.truncate(torn, torn.stat().st_size - 20)
    os.truncate(zeros, zeros.stat().st_size + 8192)
    *_, damaged, last = sorted((log_dir / "txn-mixed-0").glob(f"*{LOG_SUFFIX}"))
    with damaged.open("r+b") as log:
        log.seek(damaged.stat().st_size // 2)
        log.write(b"\xff" * 8)
    last.with_suffix(SNAPSHOT_SUFFIX).unlink()
    zeros.with_suffix(OFFSET_INDEX_SUFFIX).unlink()
    return log_dir


def _mending(directory: Path) -> tuple[str | Path, ...]:
    return ("recover", directory / "logs", "--apply", "--mend", "--keep", directory / _KEPT, "--processes", "1")


def _arguments(directory: Path) -> tuple[str | Path, ...]:
    cut = ("--truncate", "--keep", directory / _KEPT, "--accept-loss")
    return ("recover", directory / "logs", "--apply", "--level", "marker", *cut, "--processes", "1")


def _recover(
    directory: Path, last_step: int = 0, arguments: Callable[[Path], tuple[str | Path, ...]] = _arguments
) -> Ended:
    """Run to the end, or to just before a step; how many it took stands in a file then."""
    process = start_kidx(
        *arguments(directory), program=_KILLED, LAST_STEP=str(last_step), STEPS_FILE=directory / _STEPS
    )
    return end(process)


def _files(directory: Path) -> dict[str, bytes]:
    return tree(directory, but=(LOCK_FILE, _STEPS))


def _starts(log_dir: Path) -> dict[str, object]:
    """What a broker makes of each partition: the segments, with their bytes, and where the log begins and ends."""
    found: dict[str, object] = {}
    stop = last_stops([log_dir])[log_dir]
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        partition = parse_partition_directory(directory.name)
        assert partition is not None, directory
        of_partition = stop.of(partition)
        simulated = simulate_startup(
            directory,
            RecoverOptions(),
            clean_shutdown=of_partition.clean_shutdown,
            recovery_point=of_partition.recovery_point,
            log_start_offset=of_partition.log_start_offset,
        )
        assert not simulated.fails and not simulated.forgets_producers, (directory, simulated)
        left = [segment for segment in simulated.segments if segment.action is not StartupAction.DELETE]
        kept = [(segment.base_offset, segment.kept_bytes) for segment in left]
        found[directory.name] = kept, simulated.log_start_offset, simulated.log_end_offset
    return found


def test_a_run_that_is_killed_leads_to_the_same(
    crashed: Path, tmp_path: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """After a kill before any change of a file, a broker would come to the same logs, and the next run to the same
    files, those kept among them. The run kills itself with its workers. What a broker would make of it is simulated, as
    compared with Kafka's `LogLoader` elsewhere.
    """
    expected = _starts(crashed)
    whole = tmp_path / "whole"
    shutil.copytree(crashed, whole / "logs")
    ended = _recover(whole)
    assert ended.code == ExitCode.PROBLEMS_FOUND and "cut off: " in ended.out, ended
    count, files = int((whole / _STEPS).read_text()), _files(whole)
    assert count > 20
    assert _starts(whole / "logs") == expected and f"logs/{CLEAN_SHUTDOWN_FILE}" in files
    assert any(name.startswith(f"{_KEPT}/") for name in files)
    for step in range(1, count + 1) if exhaustive else sorted(rng.sample(range(1, count + 1), 3)):
        killed = tmp_path / f"killed-{step}"
        shutil.copytree(crashed, killed / "logs")
        assert _recover(killed, step).code == -9, step
        assert _starts(killed / "logs") == expected, step
        again = kidx(*_arguments(killed))
        assert again.code in (ExitCode.OK, ExitCode.PROBLEMS_FOUND), (step, again)
        assert _files(killed) == files, step
        shutil.rmtree(killed)
    say(f"killed before {count if exhaustive else 3} of {count} changes")


def test_a_run_that_is_killed_as_it_mends(crashed: Path, tmp_path: Path, rng: random.Random, exhaustive: bool) -> None:
    """After a kill before any change of a file, what was there is in place or kept, and the next run comes to the same
    files. The checkpoints of a whole partition and of its log dir are zeros.
    """
    damaged, spoilt = tmp_path / "damaged", ("plain-zstd-0/leader-epoch-checkpoint", "recovery-point-offset-checkpoint")
    shutil.copytree(crashed / "plain-zstd-0", damaged / "logs" / "plain-zstd-0")
    shutil.copy(crashed / META_PROPERTIES, damaged / "logs")
    for name in spoilt:
        (damaged / "logs" / name).write_bytes(bytes(64))
    shutil.copytree(damaged, tmp_path / "whole")
    ended = _recover(tmp_path / "whole", 0, _mending)
    assert ended.code in (ExitCode.OK, ExitCode.PROBLEMS_FOUND) and "mend: " in ended.out, ended
    count, files = int((tmp_path / "whole" / _STEPS).read_text()), _files(tmp_path / "whole")
    assert [name for name in spoilt if files[f"logs/{name}"] == bytes(64)] == []
    for step in range(1, count + 1) if exhaustive else sorted(rng.sample(range(1, count + 1), 2)):
        killed = tmp_path / f"killed-{step}"
        shutil.copytree(damaged, killed)
        assert _recover(killed, step, _mending).code == -9, step
        now = _files(killed).values()
        assert list(now).count(bytes(64)) >= len(spoilt), step  # in place or kept
        assert kidx(*_mending(killed)).code == ended.code, step
        assert _files(killed) == files, step
        shutil.rmtree(killed)
