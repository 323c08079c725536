"""A DAG for each catalog: audit its logs and index files, all of them or a part each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Param, chain
from airflow.sdk.exceptions import AirflowSkipException

from kidx_dags.build_job import build_job, build_params, index_dir_options, source_options
from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import LINES, no_problems, spark_job


def _never_audited(lines: list[str]) -> int | None:
    """How many partitions were never audited, by the job's line of JSON; None: there is no such line."""
    for line in reversed(lines):
        if line.startswith('{"job": "verify_index"'):
            return int(json.loads(line)["counts"]["partitions_never_audited"])
    return None


def _audited_all(catalog: Catalog) -> Callable[..., None]:
    """A function that skips the asset's update unless the whole catalog was audited, as users of the asset expect."""
    usual = {"sources": catalog.sources, "topics": catalog.topics, "audit_options": catalog.audit_options}

    def audited_all(params: dict[str, Any], ti: Any) -> None:
        not_updated = f"the asset {catalog.asset.name} is not updated: "
        if others := [name for name, value in usual.items() if params[name] != value]:
            raise AirflowSkipException(
                f"{not_updated}this run audited by other {', '.join(others)} than the catalog's table has"
            )
        never = _never_audited(ti.xcom_pull(task_ids="audit", key=LINES))
        if never is None:
            raise AirflowSkipException(f"{not_updated}the task audit did not say whether it left anything out")
        if never:
            raise AirflowSkipException(f"{not_updated}{never:,} partitions were never audited; the next runs go on")

    return audited_all


def _params(catalog: Catalog) -> dict[str, Param]:
    """The params of a run, with the values of the catalog's table as defaults."""
    return {
        **build_params(catalog),
        "audit_bytes": Param(
            catalog.audit_bytes,
            type="string",
            description="Read logs of at most so many bytes, such as 500GB, those of the oldest audits; empty: all.",
        ),
        "audit_options": options_param("verify_index", catalog.audit_options),
    }


def _doc(catalog: Catalog) -> str:
    return f"""
        Audits the logs and index files of the catalog `{catalog.at_home(catalog.catalog)}`.

        - **build** indexes what a broker has written since the last run: else the audit would find no index of it.
        - **audit** checks logs, and every index against its log: all of them, or those of at most `audit_bytes` whose
          last audit is the oldest.
        - **audited_all** updates the asset `{catalog.asset.name}` if no problems are known, and each partition was
          audited at some time. A run that was given other `sources`, `topics` or `audit_options` does not update it.
        - **no_problems** fails unless both jobs found no problems.

        A task that ends with `ProblemsFoundError` has done its work and found problems; its log names them. So does
        each later run until the damage is mended or accepted. See docs/airflow.md.
    """


def audit_dag(catalog: Catalog) -> DAG:
    with catalog_dag(catalog, "audit", catalog.audit_schedule, params=_params(catalog), doc=_doc(catalog)) as dag:
        audit = spark_job(
            catalog,
            "verify_index",
            lambda context: [
                *source_options(context["params"]),
                *index_dir_options(catalog),
                *(("--max-bytes", size) if (size := context["params"]["audit_bytes"]) else ()),
                *context["params"]["audit_options"],
            ],
            task_id="audit",
            after="build",
        )
        audited_all = PythonOperator(
            task_id="audited_all",
            python_callable=_audited_all(catalog),
            outlets=[catalog.asset],  # the build does not update it: nobody knows yet whether its files are right
        )
        last = no_problems(["build", "audit"])
        chain(build_job(catalog), audit, audited_all, last)
    return dag


for catalog in read_catalogs():
    audit_dag(catalog)
