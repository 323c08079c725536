"""The options after `--`. They are passed to spark-submit unchanged, except those that ./spark-submit.sh extends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobs.common.submit.call import HELP
from jobs.common.submit.project import MODULES, PROJECT
from kidxlib.errors import UsageError

#: The 4 gives local tasks retries too: a worker that a vanishing file has killed costs one attempt.
_MASTER_DEFAULT: Final = "local[*,4]"
_DEPLOY_MODE_DEFAULT: Final = "client"
_SHARED: Final = ("--master", "--deploy-mode", "--jars", "--driver-class-path", "--py-files")
#: Properties with the same meaning as options.
_OPTION_OF_PROPERTY: Final = {
    "spark.master": "--master",
    "spark.submit.deployMode": "--deploy-mode",
    "spark.driver.extraClassPath": "--driver-class-path",
}
#: Properties that override a variable. They are passed to spark-submit, too.
_VARIABLE_OF_PROPERTY: Final = {
    "spark.pyspark.python": "PYSPARK_PYTHON",
    "spark.pyspark.driver.python": "PYSPARK_DRIVER_PYTHON",
}


class SparkOptions(NamedTuple):
    """The options after `--`.

    Attributes:
        jars, py_files: the values of `--jars` and `--py-files`, each a list with commas; `class_path` has colons.
        variables: environment variables that follow from options.
        others: options that are passed on unchanged.
    """

    master: str
    deploy_mode: str
    jars: Sequence[str]
    class_path: Sequence[str]
    py_files: Sequence[str]
    variables: Mapping[str, str]
    others: Sequence[str]

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")

    @property
    def is_in_cluster(self) -> bool:
        """Whether the driver runs in the cluster, too."""
        return self.deploy_mode == "cluster"

    @property
    def has_modules(self) -> bool:
        """Whether the given files have the project's modules already: Spark refuses two files of one name."""
        paths = ",".join(self.py_files).split(",")
        return any(os.path.basename(path).startswith(os.path.basename(MODULES)) for path in paths)


def read_spark_options(words: Sequence[str]) -> SparkOptions:
    """Separate the options that ./spark-submit.sh extends from others."""
    shared: dict[str, list[str]] = {option: [] for option in _SHARED}
    variables: dict[str, str] = {}
    others: list[str] = []
    for word in _joined_with_values(words):
        option, _, value = word.partition("=")
        if option == "--conf":
            name, equals, of_property = value.partition("=")
            if equals and name in _VARIABLE_OF_PROPERTY:
                variables[_VARIABLE_OF_PROPERTY[name]] = of_property
            elif equals and name in _OPTION_OF_PROPERTY:
                option, value = _OPTION_OF_PROPERTY[name], of_property
        if option in shared:
            shared[option].append(value)
        else:
            others.append(word)
    return SparkOptions(
        master=[_MASTER_DEFAULT, *shared["--master"]][-1],
        deploy_mode=[_DEPLOY_MODE_DEFAULT, *shared["--deploy-mode"]][-1],
        jars=shared["--jars"],
        class_path=shared["--driver-class-path"],
        py_files=shared["--py-files"],
        variables=variables,
        others=others,
    )


def _joined_with_values(words: Sequence[str]) -> Iterator[str]:
    """The options as words; an option that is read here, and its value, are one word."""
    rest = iter(words)
    for word in rest:
        if word in (*HELP, "--version"):
            raise UsageError(f"{word} after -- is spark-submit's: {PROJECT}/.venv/bin/spark-submit {word} shows it")
        if word in (*_SHARED, "--conf", "-c"):
            value = next(rest, None)
            if value is None:
                raise UsageError(f"{word} needs a value")
            yield f"{'--conf' if word == '-c' else word}={value}"
        else:
            yield word
