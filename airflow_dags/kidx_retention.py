"""A DAG for each catalog: plan what retention would delete, and, by hand and once approved, delete it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, Asset, Context, Param, chain
from airflow.sdk.exceptions import AirflowFailException

from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import LINES, spark_job


def _audited(asset: Asset) -> Callable[..., bool]:
    """A function that tells whether an audit has updated the asset since the last run. A schedule on the asset itself
    would make a plan for each audit; so the DAG has a schedule of its own.
    """

    def audited(inlet_events: Any, dag_run: Any, ti: Any) -> bool:
        if dag_run.run_type == "manual":
            return True
        audits = inlet_events[asset].limit(1)
        if (last_run := ti.get_previous_dagrun(state="success")) is not None:
            audits = audits.after(last_run.run_after.isoformat())
        return len(audits) > 0

    return audited


def _to_apply(params: dict[str, Any], dag_run: Any) -> bool:
    return bool(params["apply"]) and dag_run.run_type == "manual"


#: The options that say where a cluster's metadata is. A plan is applied with the same ones.
_OF_METADATA = ("--cluster-metadata", "--server-properties", "--metadata-high-watermark")


def _metadata_options(options: list[str]) -> list[str]:
    """The metadata's options among a plan's, which its application needs, too."""
    joined = [option for option in options if option.partition("=")[0] in _OF_METADATA and "=" in option]
    apart = [pair for pair in pairwise(options) if pair[0] in _OF_METADATA]
    return [*joined, *(word for pair in apart for word in pair)]


def _apply_options(catalog: Catalog, context: Context) -> list[str]:
    """The options that apply the plan of this run, which was approved. It may be as old as approval and tasks take."""
    max_age = timedelta(hours=catalog.approval_hours + catalog.timeout_hours)
    lines = context["ti"].xcom_pull(task_ids="plan", key=LINES)
    plans = [line.removeprefix("plan ") for line in lines if line.startswith("plan ")]
    if len(plans) != 1:
        raise AirflowFailException(f"the task plan named {len(plans)} plans, expected one; it said: {lines}")
    age = ["--max-plan-age", f"{max_age // timedelta(minutes=1)}m"]
    params = context["params"]
    return [
        "--apply",
        "--plan",
        plans[0],
        *age,
        *_metadata_options(params["retention_options"]),
        *params["apply_options"],
    ]


def retention_dag(catalog: Catalog) -> DAG:
    with catalog_dag(
        catalog,
        "retention",
        catalog.retention_schedule,
        params={
            "apply": Param(
                False,
                type="boolean",
                description="Apply the plan, once it is approved; only in runs that are started by hand.",
            ),
            "retention_options": options_param("retention", catalog.retention_options),
            "apply_options": options_param("retention --apply", []),
        },
        doc=f"""
            Plans which segments of the catalog `{catalog.at_home(catalog.catalog)}` retention would delete.

            - **audited** goes on if an audit has updated the asset `{catalog.asset.name}` since the last run, or if the
              run was started by hand.
            - **plan** records the plan in the table `retention_plans`. Nothing is deleted. Topics whose configuration
              neither the `--policy` file in `retention_options` nor the cluster's metadata states are not decided on.
            - **to_apply** goes on only in runs started by hand with the param `apply`.
            - **approve** waits for a person, {catalog.approval_hours:g} hours at most, and shows what the plan says.
            - **apply** applies this very plan, as far as it holds by then: policy, offsets and files are looked at
              again.

            See docs/airflow.md.
        """,
    ) as dag:
        audited = ShortCircuitOperator(
            task_id="audited", python_callable=_audited(catalog.asset), inlets=[catalog.asset]
        )
        plan = spark_job(
            catalog,
            "retention",
            lambda context: context["params"]["retention_options"],
            by_the_clock=True,  # a plan for a given time is a what-if, which is never applied
            task_id="plan",
        )
        to_apply = ShortCircuitOperator(task_id="to_apply", python_callable=_to_apply)
        approve = ApprovalOperator(
            task_id="approve",
            subject=f"kidx {catalog.name}: delete what this plan names?",
            body=f"{{{{ ti.xcom_pull(task_ids='plan', key='{LINES}') | join('\n\n') }}}}",
            retries=0,
            execution_timeout=None,
            response_timeout=timedelta(hours=catalog.approval_hours),
        )
        apply = spark_job(
            catalog,
            "retention",
            partial(_apply_options, catalog),
            by_the_clock=True,
            task_id="apply",
            conn_id=catalog.apply_conn_id or catalog.conn_id,
        )
        chain(audited, plan, to_apply, approve, apply)
    return dag


for catalog in read_catalogs():
    retention_dag(catalog)
