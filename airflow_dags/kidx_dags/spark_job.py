"""The project's jobs as tasks: the Spark provider submits them, and their exit codes become outcomes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import Context, TriggerRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kidx_dags.catalogs import Catalog

#: A job's options in a run.
Options: TypeAlias = Callable[[Context], list[str]]

#: The XCom with the lines that a job printed.
LINES: Final = "said"
#: The XCom of a job that came to its end: the problems that it found, or an empty text.
PROBLEMS: Final = "problems"

_EXIT_CODE: Final = re.compile(r"Error code is: (-?\d+)\.")
_WRONG_OPTIONS, _PROBLEMS_FOUND = 2, 3
#: The number of a job's last lines that are kept. Tables and lines about progress are not kept.
_LINES_KEPT: Final = 200
_NOT_KEPT: Final = re.compile(r"[┏┃┡│└]|\d\d:\d\d:\d\d [a-z]")
#: The beginnings of lines in which jobs name problems.
_NAMES_SEGMENTS: Final = re.compile(
    r"(damaged|truncated|quarantined|changed|not-due|not-renamed|unreadable|broken|bad|torn|safe|truncate|empty|delete"
    r"|fail|split|not ready for tiering|problem|disagreement|kept|lost): |warning: .*no segment found, but |… and "
)


class WrongOptionsError(AirflowFailException):
    """Options or inputs are wrong, and nothing was done; another try would not help."""


class ProblemsFoundError(AirflowFailException):
    """The job is done, but some segments have problems, which another try would find again. Later tasks go on."""


class SparkJob(SparkSubmitOperator):
    """A job of the project as a task. The exit codes 2 and 3 are not tried again; 1 and all others are. The lines of a
    job that finds no problems become the XCom `LINES`. A job that comes to its end has the XCom `PROBLEMS`.

    Attributes:
        after: the id of a task that must have come to its end, with problems or without; else this task is skipped.
            Airflow itself does not tell a job that found problems from one that broke down: both failed.
    """

    def __init__(self, *, after: str = "", **of_operator: Any) -> None:
        rule = TriggerRule.ALL_DONE if after else TriggerRule.ALL_SUCCESS
        super().__init__(**{"trigger_rule": rule, **of_operator})
        self.after = after

    def execute(self, context: Context) -> None:
        if self.after and context["ti"].xcom_pull(task_ids=self.after, key=PROBLEMS) is None:
            raise AirflowSkipException(f"the task {self.after} did not come to its end")
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        try:
            super().execute(context)
        except AirflowException as error:
            # The provider gives the exit code in no other way.
            match = _EXIT_CODE.search(str(error))
            code = int(match[1]) if match else None
            if code == _WRONG_OPTIONS:
                raise WrongOptionsError(self._outcome("options or inputs are wrong", list(self._lines)[-5:])) from error
            if code == _PROBLEMS_FOUND:
                named = [line for line in self._lines if _NAMES_SEGMENTS.match(line)]
                outcome = self._outcome("some segments have problems", named)
                context["ti"].xcom_push(key=PROBLEMS, value=outcome)
                raise ProblemsFoundError(outcome) from error
            raise
        context["ti"].xcom_push(key=LINES, value=list(self._lines))
        context["ti"].xcom_push(key=PROBLEMS, value="")

    def _get_hook(self) -> SparkSubmitHook:
        """The provider's hook, with `_listen` in it: by itself it passes on 20 lines, and only of a failed job."""
        hook = super()._get_hook()
        process = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda itr: process(self._listen(itr))  # type: ignore[method-assign]
        return hook

    def _listen(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if line.strip() and not _NOT_KEPT.match(line):
                self._lines.append(line.rstrip())
            yield line

    def _outcome(self, what: str, lines: Iterable[str]) -> str:
        return "\n".join([f"{self.name}: {what}", *(f"  {line}" for line in lines)])


def no_problems(jobs: list[str]) -> PythonOperator:
    """The last task of a DAG whose jobs go on after problems of others: it fails if one of the jobs found problems, or
    did not come to its end.
    """

    def look(ti: Any) -> None:
        texts = {job: ti.xcom_pull(task_ids=job, key=PROBLEMS) for job in jobs}
        problems = [f"{job}: did not come to its end" if text is None else text for job, text in texts.items()]
        if any(problems):
            raise ProblemsFoundError("\n".join(filter(None, problems)))

    return PythonOperator(
        task_id="no_problems",
        python_callable=look,
        trigger_rule=TriggerRule.ALL_DONE,  # the last task decides what becomes of a run
        retries=0,
    )


def spark_job(
    catalog: Catalog, job: str, options: Options, *, by_the_clock: bool = False, **of_operator: Any
) -> SparkJob:
    """A task that runs `jobs/JOB.py` under the real spark-submit, as `./spark-submit.sh JOB` would, with the catalog,
    the settings file, the time, a line of JSON at the end, and `options`. A job `by_the_clock` gets no time: its
    removals go by its machine's clock.
    """
    python = catalog.at_home(".venv/bin/python")

    def arguments(context: Context, jinja_env: object) -> list[str]:
        return [
            *("--catalog", catalog.at_home(catalog.catalog), "--settings", catalog.at_home(catalog.settings)),
            *(() if by_the_clock else ("--now", context["dag_run"].run_after.isoformat())),
            "--json-line",  # at the end of the task's log, and in the XCom
            *options(context),
        ]

    def conf(context: Context, jinja_env: object) -> dict[str, str]:
        return dict(context["params"]["conf"])

    return SparkJob(
        **{
            "task_id": job,
            "conn_id": catalog.conn_id,
            "pool": catalog.pool,
            "name": job,
            "application": catalog.at_home(f"jobs/{job}.py"),
            "application_args": arguments,
            "spark_binary": catalog.at_home(".venv/bin/spark-submit"),
            "jars": catalog.at_home(".jars/delta/*.jar"),
            "py_files": catalog.py_files and catalog.at_home(catalog.py_files),
            "archives": catalog.archives and catalog.at_home(catalog.archives),
            "conf": conf,
            "env_vars": {
                "PYTHONPATH": catalog.home,
                "PYTHONSAFEPATH": "1",  # Spark starts a script, whose directory would come first on the path
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                "SPARK_CONF_DIR": catalog.at_home("conf"),
                **catalog.env,
            },
            **of_operator,
        }
    )
