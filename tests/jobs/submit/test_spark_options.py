"""Of spark-submit's options those that ./spark-submit.sh adds to are found in all forms; others stay as they are."""

from __future__ import annotations

import pytest

from jobs.common.submit.project import PROJECT
from jobs.common.submit.spark_options import read_spark_options
from kidxlib.errors import UsageError


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
