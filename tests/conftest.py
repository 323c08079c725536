"""What all tests share: the options `--golden` and `--exhaustive`, how many examples Hypothesis tries, random numbers,
and lines for the end of the run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import hypothesis
import pytest

from kidxlib.terminal.console import end_phases
from tests.support.checksum_store import ChecksumStore
from tests.support.checksum_store import checksum_store as start_checksum_store
from tests.support.logs import golden
from tests.support.object_store import CREDENTIALS, ObjectStore, object_store, use

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say: TypeAlias = Callable[[str], None]

LINES: Final = pytest.StashKey[list[str]]()
_LINES_OUTPUT: Final = "kidx_lines"
_TESTS: Final = Path(__file__).parent
#: Directories by how long a file's tests take: the pages, whose blocks are one file's and take a quarter of an hour;
#: those that start Spark; those that start many processes or try many examples; and all others.
_ORDER: Final = (
    ("docs",),
    ("airflow", "jobs", "kidxlib/spark"),
    ("faults", "stores", "wheel", "kafka", "processors", "kidxlib/commands", "kidxlib/recovery"),
)
#: Files that use the one session of Spark that a process has, and have one process for that. To start the session, and
#: to make it fast, takes half a minute of processor and a GiB. What starts Spark as a user does is not among these.
_ONE_SESSION: Final = {
    "jobs": (
        *(f"tests/docs/test_{name}.py" for name in ("catalog_tables", "sql_questions")),
        *(f"tests/jobs/build/test_{name}.py" for name in ("build_index", "engines")),
        *(f"tests/jobs/{name}/" for name in ("audit", "catalog", "compaction", "seek")),
        *(f"tests/jobs/spark/test_{name}.py" for name in ("engine", "errors")),
        *(f"tests/jobs/test_{name}.py" for name in ("as_kidx", "backend", "object_stores")),
    ),
    "source of segments": ("tests/kafka/test_spark_", "tests/kidxlib/spark/"),
}

#: The same examples each time: what continuous integration runs, and everybody before a commit.
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None)
#: Other examples each time, for as long as one cares to wait.
hypothesis.settings.register_profile("exhaustive", max_examples=50_000, deadline=None)

_EXAMPLES_MIN: Final = 20


def one_in(number: int) -> hypothesis.settings:
    """For a property whose examples take long: so much fewer of them than other properties have, but 20 at least."""
    return hypothesis.settings(max_examples=max(_EXAMPLES_MIN, hypothesis.settings().max_examples // number))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kidx")
    group.addoption(
        "--golden",
        metavar="DIR",
        default=os.environ.get("KIDX_FIXTURES"),
        help="more golden segments: a directory with broker/, synthetic/, damaged/ and expected/ (or KIDX_FIXTURES)",
    )
    group.addoption(
        "--exhaustive", action="store_true", help="many random Hypothesis examples in place of the same few"
    )
    group.addoption(
        "--kafka-version",
        metavar="VERSION",
        help="compare with this Kafka alone, whose jars are fetched; without it, with the two that are promised",
    )
    group.addoption(
        "--record",
        action="store_true",
        help="write down what brokers do in cases that nothing is recorded of (tests/kafka/recordings.py)",
    )


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(CREDENTIALS)  # before the first Spark is started, whose tasks have what it has
    exhaustive = config.getoption("exhaustive")
    hypothesis.settings.load_profile("exhaustive" if exhaustive else "ci")
    if exhaustive and config.getoption("timeout") is None:
        config.option.timeout = 0  # no limit
    if exhaustive and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


class _FailuresAtOnce:
    """Prints a failure when it happens: the run may go on for an hour, or run out of time and print no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)  # after the letter that stands for it
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext[-2_000:]}")


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_FailuresAtOnce(terminal))


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.getoption("hypothesis_seed")
    examples = hypothesis.settings().max_examples
    profile = f"exhaustive, --hypothesis-seed={seed}" if config.getoption("exhaustive") else "ci, the same each time"
    directories = ["tests/data", "samples", *filter(None, [config.getoption("golden")])]
    return [
        f"generated segments: {profile}, {examples} examples a property",
        f"golden segments: {len(_golden_segments(config))} in {', '.join(directories)}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("what was tried")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)  # after pytest-randomly has shuffled the files
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is for `--exhaustive` alone. Files whose tests take minutes come first: what is left at the end is
    short for each process, and none waits.
    """
    for item in items:
        if (marker := item.get_closest_marker("exhaustive")) and not item.config.getoption("exhaustive"):
            item.add_marker(pytest.mark.skip(f"with --exhaustive: {marker.args[0]}"))
    items.sort(key=_order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, the tests of a file stay together, and files of one session of Spark do."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            of_session = (name for name, files in _ONE_SESSION.items() if nodeid.startswith(files))
            return next(of_session, str(super()._split_scope(nodeid)))

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _order(item: pytest.Item) -> int:
    directory = item.path.parent.relative_to(_TESTS)
    above = {str(each) for each in (directory, *directory.parents)}
    return next((number for number, names in enumerate(_ORDER) if above & {*names}), len(_ORDER))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a process of pytest-xdist has to say goes to the one that started it."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[_LINES_OUTPUT] = session.config.stash.get(LINES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(LINES, []).extend(getattr(node, "workeroutput", {}).get(_LINES_OUTPUT, []))


@pytest.fixture(autouse=True)
def _no_phase_is_left() -> Iterator[None]:
    """What a test began, as a session of Spark that it opened itself, is not told in the next test's standard error."""
    yield
    end_phases()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Prints a line at the end of the test run, whether tests pass or not."""
    lines = request.config.stash.setdefault(LINES, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


@pytest.fixture
def rng(say: Say) -> random.Random:
    """Random numbers. pytest-randomly seeds `random` before each test, so its --randomly-seed gives the same ones."""
    seed = random.getrandbits(32)
    say(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether to take minutes in place of seconds."""
    return bool(request.config.getoption("--exhaustive", default=False))


@pytest.fixture(scope="session")
def _s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def store(_s3_server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A real S3 server, one for the whole run, which this process and those that it starts find in the environment."""
    use(_s3_server, monkeypatch)
    return _s3_server


@pytest.fixture(scope="session")
def _checksum_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChecksumStore]:
    with start_checksum_store(tmp_path_factory.mktemp("checksums")) as store:
        yield store


@pytest.fixture
def checksum_store(_checksum_server: ChecksumStore, monkeypatch: pytest.MonkeyPatch) -> ChecksumStore:
    """A real S3 server that computes checksums, as `store`."""
    use(_checksum_server, monkeypatch)
    return _checksum_server


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The session that tests of a process share, which knows the source of segments."""
    import kidxlib.spark
    from jobs.common.spark.session import session  # with Spark, which few tests wait for
    from tests.support.spark.sessions import use_shared_session

    use_shared_session()
    with session("test") as spark:
        kidxlib.spark.register(spark)
        yield spark


@pytest.fixture(scope="session")
def golden_segments(request: pytest.FixtureRequest) -> list[golden.GoldenSegment]:
    """All segments whose indexes Kafka has written."""
    return _golden_segments(request.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_segment" in metafunc.fixturenames:
        segments = _golden_segments(metafunc.config)
        metafunc.parametrize("golden_segment", segments, ids=[segment.name for segment in segments])


def _golden_segments(config: pytest.Config) -> list[golden.GoldenSegment]:
    more = config.getoption("golden")
    try:
        return golden.committed() + (golden.found_below(Path(more)) if more else [])
    except OSError as error:
        raise pytest.UsageError(
            f"--golden {more}: {error}; expected broker/, synthetic/, damaged/, expected/"
        ) from error
