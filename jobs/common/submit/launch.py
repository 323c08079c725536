"""The command that runs a job on Spark, its environment, and the options after `--` that go into it.

By default Spark runs on this machine, with all its cores. SPARK_HOME, SPARK_CONF_DIR, SPARK_LOCAL_IP, PYSPARK_PYTHON
and PYSPARK_DRIVER_PYTHON are respected if they are set.

In client mode the job is an ordinary Python process that starts Spark's bin/spark-submit itself, with the options in
PYSPARK_SUBMIT_ARGS. If spark-submit started the job, it would merge stderr into stdout, so that `--json` mixes with
messages, hide the terminal, and start a JVM before the job can report a misspelt option. With --deploy-mode cluster the
job runs elsewhere, and spark-submit has to start it. Options after `--` are passed to spark-submit unchanged, except
those that ./spark-submit.sh extends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobs.common.submit.call import HELP, MODULES, PROJECT, PYTHON, Call, python_path, visible_names_in
from kidxlib.errors import UsageError

#: The variables that a run depends on, in the order in which they are printed: always, and where the driver is.
_ALWAYS: Final = (
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"),
    *("KIDX_CONF_BY_NAME", "JAVA_HOME"),
)
#: YARN sets these two for a driver that runs elsewhere, too.
_PYTHONS: Final[Sequence[str]] = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_HERE: Final[Sequence[str]] = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHASHSEED", *_PYTHONS, "PYSPARK_SUBMIT_ARGS")


class Launch(NamedTuple):
    """The command that runs a job, and the variables of its environment."""

    variables: Mapping[str, str]
    command: Sequence[str]

    @property
    def words(self) -> list[str]:
        """The command after `env`, which sets the variables."""
        return ["env", *self._assignments, *self.command]

    @property
    def printed(self) -> str:
        """The command for bash, with a line for each variable."""
        import shlex

        return "env " + " \\\n    ".join([*map(shlex.quote, self._assignments), shlex.join(self.command)])

    @property
    def _assignments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.variables.items()]


def sends_modules(call: Call, options: SparkOptions) -> bool:
    """Whether the command that runs a job sends the project's modules to the executors."""
    if call.image and not options.master.startswith("k8s://"):
        raise UsageError(f"--in-image: only with --master k8s://…, not {options.master}")
    return not (options.is_local or call.image or options.has_modules)


def launch(call: Call, options: SparkOptions, environ: Mapping[str, str]) -> Launch:
    """The command that runs the job of a call."""
    has_archive = options.is_local and not environ.get("SPARK_HOME") and not environ.get("SPARK_CONF_DIR")
    submit = _submit_words(call, options, has_archive=has_archive)
    variables = {**environ, **options.variables, **_spark_directories(environ)}
    variables["PYSPARK_PYTHON"] = variables.get("PYSPARK_PYTHON") or PYTHON
    if options.is_local:
        # Open no port to others, and do not look up this machine's name.
        variables["SPARK_LOCAL_IP"] = environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    if has_archive:
        variables |= _class_archive(environ)
    if options.is_in_cluster:
        of_driver = _PYTHONS
        script = f"{_own_place(call)}/jobs/{call.job}.py"
        command = [f"{variables['SPARK_HOME']}/bin/spark-submit", *submit, script, *call.job_options]
    else:
        of_driver = _HERE
        python = variables["PYSPARK_DRIVER_PYTHON"] = variables.get("PYSPARK_DRIVER_PYTHON") or PYTHON
        variables["PYTHONPATH"] = ":".join([*_python_side(environ), python_path(environ)])
        variables["PYTHONSAFEPATH"] = "1"
        variables["PYTHONHASHSEED"] = environ.get("PYTHONHASHSEED") or "0"  # as spark-submit has it
        variables["PYSPARK_SUBMIT_ARGS"] = f"{_quoted(submit)} pyspark-shell"
        command = [python, "-m", f"jobs.{call.job}", *call.job_options]
    return Launch({name: variables[name] for name in (*_ALWAYS, *of_driver) if variables.get(name)}, command)


def _submit_words(call: Call, options: SparkOptions, *, has_archive: bool) -> list[str]:
    delta = [
        f"{_own_place(call)}/.jars/delta/{name}" for name in visible_names_in(f"{PROJECT}/.jars/delta", end=".jar")
    ]
    jars, class_path = ([], delta) if options.is_local else (delta, [])
    modules = [MODULES] if sends_modules(call, options) else []
    words = ["--master", options.master, "--deploy-mode", options.deploy_mode]
    for option, paths in (
        ("--jars", ",".join([*jars, *options.jars])),
        ("--py-files", ",".join([*modules, *options.py_files])),
        ("--driver-class-path", ":".join([*class_path, *options.class_path])),
    ):
        words += [option, paths] if paths else []
    if has_archive:
        words += ["--properties-file", f"{PROJECT}/conf/spark-defaults.conf"]
    words += ["--name", str(call.job), *options.others]
    if call.image:
        words += ["--conf", f"spark.pyspark.python={call.image}/.venv/bin/python"]
    return words


def _own_place(call: Call) -> str:
    return f"local://{call.image}" if call.image else PROJECT


def _class_archive(environ: Mapping[str, str]) -> dict[str, str]:
    """Options with which Java uses the class archive of setup.sh (or makes it, for setup.sh). It does so only with jars
    alone on the class path: so Delta's jars are on it, conf/ is not (spark-env.sh), and conf's files are given by name.
    """
    made = environ.get("KIDX_CLASS_ARCHIVE")
    archive = f"-XX:ArchiveClassesAtExit={made}" if made else f"-XX:SharedArchiveFile={PROJECT}/.jars/spark.jsa"
    own = _quoted([archive, f"-Dlog4j2.configurationFile={PROJECT}/conf/log4j2.properties"])
    return {"SPARK_SUBMIT_OPTS": f"{own} {environ.get('SPARK_SUBMIT_OPTS', '')}", "KIDX_CONF_BY_NAME": "yes"}


def _spark_directories(environ: Mapping[str, str]) -> dict[str, str]:
    """The Spark of setup.sh with kidx's settings, unless the caller has another."""
    if environ.get("SPARK_HOME"):
        return {}
    library = f"{PROJECT}/.venv/lib"
    python = next(iter(visible_names_in(library, "python3.")), "python3")
    return {
        "SPARK_HOME": f"{library}/{python}/site-packages/pyspark",
        "SPARK_CONF_DIR": environ.get("SPARK_CONF_DIR") or f"{PROJECT}/conf",
    }


def _python_side(environ: Mapping[str, str]) -> list[str]:
    """The paths of the pyspark in the caller's Spark: both sides must have the same version."""
    home = environ.get("SPARK_HOME")
    if not home or not os.path.isfile(f"{home}/python/pyspark/__init__.py"):
        return []
    library = f"{home}/python/lib"
    return [f"{home}/python", *(f"{library}/{name}" for name in visible_names_in(library, "py4j-", "-src.zip")[:1])]


def _quoted(words: Sequence[str]) -> str:
    """Words in double quotes, which both pyspark (with shlex) and Spark's launcher parse in the same way."""
    return " ".join('"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"')) for word in words)


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
        """Whether the job is launched with a local master."""
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
