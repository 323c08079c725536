"""The build, with which two DAGs of a catalog begin, and the options that name a job's logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from kidx_dags.catalog_dag import options_param
from kidx_dags.catalogs import Catalog
from kidx_dags.spark_job import SparkJob, spark_job


def build_params(catalog: Catalog) -> dict[str, Param]:
    """The params of a run's build, with the values of the catalog's table as defaults."""
    return {
        "sources": Param(
            catalog.sources,
            type="array",
            items={"type": "string"},
            description="[NAME=]DIR of each source, one a line; at least one.",
        ),
        "topics": Param(catalog.topics, type="string", description="Only topics whose full name matches."),
        "build_options": options_param("build_index", catalog.build_options),
    }


def build_job(catalog: Catalog) -> SparkJob:
    index_dir = index_dir_options(catalog) or ["--in-place"]
    return spark_job(
        catalog,
        "build_index",
        lambda context: [*source_options(context["params"]), *index_dir, *context["params"]["build_options"]],
        task_id="build",
    )


def source_options(params: Mapping[str, Any]) -> list[str]:
    named = [word for source in params["sources"] for word in ("--source", source)]
    return [*named, "--topics", params["topics"]]


def index_dir_options(catalog: Catalog) -> list[str]:
    """The options of a job that say where index files are; none if they are beside the logs."""
    return ["--index-dir", catalog.at_home(catalog.index_dir)] if catalog.index_dir else []
