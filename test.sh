#!/usr/bin/env bash
# Runs the static checks, which take seconds, and then the tests. Options go to pytest: ./test.sh -k recover
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$0")"
./setup.sh test
.venv/bin/ruff check --quiet
.venv/bin/ruff format --check --quiet
.venv/bin/mypy
.venv/bin/mypy --python-executable .venv-airflow/bin/python --cache-dir .mypy_cache/airflow airflow_dags
.venv/bin/lint-imports --no-logo
# A file's tests stay together: they share what takes long to make. More processes than this want more memory.
exec .venv/bin/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@"
