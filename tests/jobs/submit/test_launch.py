"""Which words are ./spark-submit.sh's own and which spark-submit's; and the command of a job, and its quoting."""

from __future__ import annotations

import importlib
import pkgutil
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobs
from jobs.common.submit.call import (
    MODULES,
    PROJECT,
    PYTHON,
    Call,
    ensure_known_job,
    job_names,
    python_path,
    read_call,
    usage,
)
from jobs.common.submit.launch import Launch, launch, read_spark_options, sends_modules
from kidxlib.errors import UsageError


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ([], Call(None)),
        (["--dry-run"], Call(None, is_dry_run=True)),
        (["seek"], Call("seek")),
        ([""], Call("")),
        (["--help", "seek"], Call("--help", ("seek",))),
        (["--dry-run", "--in-image", "/opt/kidx/", "seek"], Call("seek", is_dry_run=True, image="/opt/kidx")),
        (["--in-image", "/a", "--in-image", "/b", "seek"], Call("seek", image="/b")),
        (["seek", "--dry-run", "--in-image"], Call("seek", ("--dry-run", "--in-image"))),
    ],
)
def test_own_options_end_at_the_job(words: list[str], call: Call) -> None:
    assert vars(read_call(words)) == vars(call)


@pytest.mark.parametrize(
    ("words", "found"),
    [(["opt", "seek"], "opt"), (["--dry-run"], "--dry-run"), (["", "seek"], "nothing"), ([], "nothing")],
)
def test_a_directory_in_an_image_begins_at_its_root(words: list[str], found: str) -> None:
    with pytest.raises(
        UsageError, match=f"^--in-image: {found}; expected the directory's path in the image, from / on$"
    ):
        read_call(["--in-image", *words])


@pytest.mark.parametrize(
    ("words", "job_options", "spark_options"),
    [
        ((), (), ()),
        (("a", "b"), ("a", "b"), ()),
        (("a", "--", "b"), ("a",), ("b",)),
        (("--",), (), ()),
        (("--", "a", "--", "b"), (), ("a", "--", "b")),
    ],
)
def test_the_first_two_dashes_part_the_options(
    words: tuple[str, ...], job_options: tuple[str, ...], spark_options: tuple[str, ...]
) -> None:
    call = Call("seek", words)
    assert (call.job_options, call.spark_options) == (job_options, spark_options)


def test_without_any() -> None:
    options = read_spark_options([])
    assert (options.master, options.deploy_mode) == ("local[*,4]", "client")
    assert not [*options.jars, *options.class_path, *options.py_files, *options.others, *options.variables]
    assert options.is_local and not options.is_in_cluster and not options.has_modules


@pytest.mark.parametrize(
    "words",
    [
        ["--master", "yarn"],
        ["--master=yarn"],
        ["--conf", "spark.master=yarn"],
        ["--conf=spark.master=yarn"],
        ["-c", "spark.master=yarn"],
        ["--master", "local", "-c", "spark.master=yarn"],
        ["-c", "spark.master=local", "--master", "yarn"],
    ],
)
def test_the_last_master_counts(words: list[str]) -> None:
    options = read_spark_options(words)
    assert (options.master, options.is_local, list(options.others)) == ("yarn", False, [])


@pytest.mark.parametrize(
    "words", [["--deploy-mode", "cluster"], ["--deploy-mode=cluster"], ["-c", "spark.submit.deployMode=cluster"]]
)
def test_the_deploy_mode(words: list[str]) -> None:
    assert read_spark_options(words).is_in_cluster


def test_lists_are_gathered_and_keep_what_is_in_them() -> None:
    options = read_spark_options(
        [
            *("--jars", "a.jar,b.jar", "--jars=c=d.jar", "--py-files", "e.zip"),
            *(
                "--driver-class-path",
                "/a b:/c",
                "--conf",
                "spark.driver.extraClassPath=/v=1/x",
                "--driver-class-path=/d",
            ),
        ]
    )
    assert list(options.jars) == ["a.jar,b.jar", "c=d.jar"]
    assert list(options.class_path) == ["/a b:/c", "/v=1/x", "/d"]
    assert list(options.py_files) == ["e.zip"]
    assert list(options.others) == []


def test_a_python_that_a_property_names_is_a_variable_too() -> None:
    words = ["--conf", "spark.pyspark.python=./e/bin/python", "--conf=spark.pyspark.driver.python=/p=1/python"]
    options = read_spark_options(words)
    assert options.variables == {"PYSPARK_PYTHON": "./e/bin/python", "PYSPARK_DRIVER_PYTHON": "/p=1/python"}
    assert list(options.others) == [f"--conf={words[1]}", words[2]]


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (["--conf", "a=b"], ["--conf=a=b"]),
        (["-c", "a=b c"], ["--conf=a=b c"]),
        (["--conf", "--help"], ["--conf=--help"]),
        (["--conf", "spark.master"], ["--conf=spark.master"]),
        (["--name", "x", "--executor-memory", "2g"], ["--name", "x", "--executor-memory", "2g"]),
        (["--masters=x", "--conff", "", "two\nlines"], ["--masters=x", "--conff", "", "two\nlines"]),
    ],
)
def test_others_go_on_in_their_order(words: list[str], others: list[str]) -> None:
    assert list(read_spark_options(words).others) == others


@pytest.mark.parametrize(
    ("py_files", "have"),
    [("kidx.zip", True), ("/x/a.zip,/x/kidx.zip", True), ("/x/kidx.zip.d/a.zip", False), ("/x/my-kidx.zip", False)],
)
def test_the_projects_modules_are_known_by_their_file_name(py_files: str, have: bool) -> None:
    assert read_spark_options(["--py-files", "b.egg", "--py-files", py_files]).has_modules is have


@pytest.mark.parametrize(
    "option", ["--master", "--deploy-mode", "--jars", "--driver-class-path", "--py-files", "--conf", "-c"]
)
def test_a_missing_value_is_an_error(option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option} needs a value$"):
        read_spark_options(["--name", "x", option])


@pytest.mark.parametrize("word", ["-h", "--help", "--version"])
def test_a_question_is_spark_submits_own(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_spark_options(["--master", "yarn", word])
    assert str(refused.value) == f"{word} after -- is spark-submit's: {PROJECT}/.venv/bin/spark-submit {word} shows it"


_NAMES = [module.name for module in pkgutil.iter_modules(jobs.__path__) if not module.ispkg]


def test_each_module_is_a_job() -> None:
    assert job_names() == sorted(_NAMES) and "seek" in _NAMES


@pytest.mark.parametrize("name", _NAMES)
def test_help_has_the_first_line_of_each_docstring(name: str) -> None:
    docstring = importlib.import_module(f"jobs.{name}").__doc__
    assert docstring is not None
    assert f"\n  {name:15} {docstring.splitlines()[0]}\n" in usage()


def test_help_says_how_it_is_called() -> None:
    lines = usage().splitlines()
    assert lines[0].startswith("Usage: ./spark-submit.sh [--dry-run] [--in-image DIR] JOB ")
    assert any(line.startswith("  package         make what") for line in lines)
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("sekk", "did you mean seek? "), ("packge", "did you mean package? "), ("zzzz", ""), ("", ""), ("__init__", "")],
)
def test_a_misspelt_job_gets_a_suggestion(name: str, nearest: str) -> None:
    for known in _NAMES:
        ensure_known_job(known)
    with pytest.raises(UsageError) as refused:
        ensure_known_job(name)
    assert str(refused.value) == f"no such job: {name}; {nearest}there are: {' '.join(sorted(_NAMES))} package"


@pytest.mark.parametrize("name", ["common", "../jobs/seek", "seek.py", "/etc/passwd"])
def test_what_is_no_module_of_jobs_is_no_job(name: str) -> None:
    with pytest.raises(UsageError, match=r"^no such job: "):
        ensure_known_job(name)


_NOTHING: Final[Mapping[str, str]] = {}
#: Whatever a word of a command can be: no text has a zero byte there.
_WORDS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def launched(*words: str, environ: Mapping[str, str] = _NOTHING) -> Launch:
    call = read_call(words)
    return launch(call, read_spark_options(call.spark_options), environ)


def submit_words(found: Launch) -> list[str]:
    """spark-submit's options, as pyspark/java_gateway.py takes them apart."""
    *words, last = shlex.split(found.variables["PYSPARK_SUBMIT_ARGS"])
    assert last == "pyspark-shell"
    return words


def value_of(words: list[str], option: str) -> str:
    assert words.count(option) == 1
    return words[words.index(option) + 1]


def test_on_this_machine() -> None:
    found = launched("seek", "--offset", "1")
    assert list(found.command) == [PYTHON, "-m", "jobs.seek", "--offset", "1"]
    assert list(found.variables) == [
        *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "KIDX_CONF_BY_NAME", "PYTHONPATH"),
        *("PYTHONSAFEPATH", "PYTHONHASHSEED", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS"),
    ]
    assert found.variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert found.variables["SPARK_CONF_DIR"] == f"{PROJECT}/conf"
    assert (Path(found.variables["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    words = submit_words(found)
    assert words[:4] == ["--master", "local[*,4]", "--deploy-mode", "client"]
    assert value_of(words, "--properties-file") == f"{PROJECT}/conf/spark-defaults.conf"
    assert value_of(words, "--name") == "seek"
    assert "--jars" not in words and "--py-files" not in words


def test_deltas_jars_come_first_on_the_class_path() -> None:
    jars = value_of(submit_words(launched("seek", "--", "--driver-class-path", "/x:/y")), "--driver-class-path")
    *delta, x, y = jars.split(":")
    assert delta == sorted(map(str, Path(PROJECT, ".jars", "delta").glob("*.jar"))) and delta
    assert (x, y) == ("/x", "/y")


def test_on_a_cluster_jars_and_modules_are_sent() -> None:
    found = launched("seek", "--", "--master", "spark://h:1", "--jars", "/x.jar", "--py-files", "/y.zip,/z.zip")
    words = submit_words(found)
    assert value_of(words, "--jars").endswith(".jar,/x.jar") and f"{PROJECT}/.jars/delta/" in value_of(words, "--jars")
    assert value_of(words, "--py-files") == f"{MODULES},/y.zip,/z.zip"
    assert "--driver-class-path" not in words and "--properties-file" not in words
    assert not {"SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "KIDX_CONF_BY_NAME"} & found.variables.keys()


def test_in_cluster_mode_spark_submit_is_the_program() -> None:
    found = launched("seek", "a b", "--", "--master=yarn", "--deploy-mode=cluster", environ={"HADOOP_CONF_DIR": "/h"})
    home = found.variables["SPARK_HOME"]
    assert found.command[0] == f"{home}/bin/spark-submit"
    assert list(found.command[-2:]) == [f"{PROJECT}/jobs/seek.py", "a b"]
    assert found.variables == {
        "HADOOP_CONF_DIR": "/h",
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": f"{PROJECT}/conf",
        "PYSPARK_PYTHON": PYTHON,
    }


def test_in_an_image_all_is_there() -> None:
    found = launched(
        *("--in-image", "/opt/kidx", "seek", "q", "--", "--master=k8s://h", "--deploy-mode", "cluster", "-c", "a=b")
    )
    words = list(found.command)
    assert words[-4:] == ["--conf", "spark.pyspark.python=/opt/kidx/.venv/bin/python", *words[-2:]]
    assert words[-2:] == ["local:///opt/kidx/jobs/seek.py", "q"]
    assert all(jar.startswith("local:///opt/kidx/.jars/delta/") for jar in value_of(words, "--jars").split(","))
    assert "--py-files" not in words


@pytest.mark.parametrize(
    ("words", "sends"),
    [
        (["seek"], False),
        (["seek", "--", "--master", "yarn"], True),
        (["seek", "--", "--master", "yarn", "--py-files", "/x/kidx.zip"], False),
        (["--in-image", "/x", "seek", "--", "--master", "k8s://h"], False),
        (["seek", "--", "--master", "k8s://h"], True),
    ],
)
def test_modules_are_sent_where_they_are_not(words: list[str], sends: bool) -> None:
    call = read_call(words)
    assert sends_modules(call, read_spark_options(call.spark_options)) is sends


@pytest.mark.parametrize("words", [[], ["--", "--master", "yarn"]])
def test_an_image_is_for_kubernetes(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^--in-image: only with --master k8s://…, not (local\[\*,4\]|yarn)$"):
        launched("--in-image", "/x", "seek", *words)


def test_what_the_caller_has_set_is_respected() -> None:
    environ = {
        "SPARK_LOCAL_IP": "10.0.0.1",
        "PYTHONHASHSEED": "7",
        "JAVA_HOME": "/j",
        "YARN_CONF_DIR": "/y",
        "PYSPARK_PYTHON": "/p",
        "PYSPARK_DRIVER_PYTHON": "/d",
        "SPARK_CONF_DIR": "/c",
    }
    found = launched("seek", environ={**environ, "HOME": "/home/me"})
    assert environ.items() <= found.variables.items() and "HOME" not in found.variables
    assert found.command[0] == "/d"
    assert "KIDX_CONF_BY_NAME" not in found.variables, "with settings of the caller's own"


def test_an_option_wins_over_a_variable() -> None:
    environ = {"PYSPARK_PYTHON": "/p", "PYSPARK_DRIVER_PYTHON": "/d"}
    words = ("seek", "--", "-c", "spark.pyspark.python=/q", "-c", "spark.pyspark.driver.python=/e")
    found = launched(*words, environ=environ)
    assert (found.variables["PYSPARK_PYTHON"], found.command[0]) == ("/q", "/e")


def test_empty_variables_are_as_none() -> None:
    names = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH", "KIDX_CLASS_ARCHIVE")
    assert launched("seek", environ=dict.fromkeys(names, "")) == launched("seek")


def test_another_spark_brings_its_own_python_side(tmp_path: Path) -> None:
    """One that has none, as pip installs it, is taken with ours."""
    environ = {"SPARK_HOME": str(tmp_path), "PYTHONPATH": "/mine"}
    assert launched("seek", environ=environ).variables["PYTHONPATH"] == f"{PROJECT}:/mine"
    library = tmp_path / "python" / "lib"
    library.mkdir(parents=True)
    (library / "py4j-0.10-src.zip").touch()
    (tmp_path / "python" / "pyspark").mkdir()
    (tmp_path / "python" / "pyspark" / "__init__.py").touch()
    found = launched("seek", environ=environ)
    assert found.variables["PYTHONPATH"] == f"{tmp_path}/python:{library}/py4j-0.10-src.zip:{PROJECT}:/mine"
    assert found.variables["SPARK_HOME"] == str(tmp_path)
    assert not {"SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "KIDX_CONF_BY_NAME"} & found.variables.keys()


def test_modules_of_the_caller_come_after_the_projects() -> None:
    assert python_path({}) == python_path({"PYTHONPATH": ""}) == PROJECT
    assert python_path({"PYTHONPATH": "/a:/b"}) == f"{PROJECT}:/a:/b"


def test_java_takes_classes_from_the_archive_or_makes_it() -> None:
    taken = launched("seek", environ={"SPARK_SUBMIT_OPTS": '-Dx="y z"'}).variables["SPARK_SUBMIT_OPTS"]
    assert shlex.split(taken) == [
        f"-XX:SharedArchiveFile={PROJECT}/.jars/spark.jsa",
        f"-Dlog4j2.configurationFile={PROJECT}/conf/log4j2.properties",
        "-Dx=y z",
    ]
    made = launched("seek", environ={"KIDX_CLASS_ARCHIVE": '/a "b"/c'}).variables["SPARK_SUBMIT_OPTS"]
    assert shlex.split(made)[0] == '-XX:ArchiveClassesAtExit=/a "b"/c'


@given(_WORDS, _WORDS)
def test_pyspark_takes_each_word_as_it_was_given(word: str, value: str) -> None:
    words = submit_words(
        launched("seek", "--", "--master", "local", "--jars", f"{value}x", "--conf", f"a={value}", f"_{word}")
    )
    assert value_of(words, "--jars") == f"{value}x"
    assert words[-2:] == [f"--conf=a={value}", f"_{word}"]


@settings(max_examples=20)
@given(st.lists(_WORDS, max_size=5), _WORDS)
def test_bash_takes_each_printed_word_as_it_was_given(words: list[str], path: str) -> None:
    found = launched("seek", *(word for word in words if word != "--"), environ={"JAVA_HOME": path})
    script = f"words=({found.printed})\nprintf '%s\\0' \"${{words[@]}}\""
    read = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    assert read.decode().split("\0")[:-1] == found.words


def test_a_line_is_printed_for_each_variable() -> None:
    first, *others, last = launched("seek", "a b").printed.split(" \\\n    ")
    assert first.startswith("env SPARK_HOME=")
    assert [shlex.split(line)[0].partition("=")[0] for line in others] == list(launched("seek").variables)[1:]
    assert last == f"{PYTHON} -m jobs.seek 'a b'"
