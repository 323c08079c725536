#!/usr/bin/env bash
# Runs the static checks, which take seconds, and then the tests. Options go to pytest: ./test.sh -k recover
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" # called through a link, too
if [[ ${1-} == -h || ${1-} == --help ]]; then
  cat <<'HELP'
Usage: ./test.sh [options and paths of pytest]

Sets up whatever is missing, runs the static checks, then the tests:

  ./test.sh                          what continuous integration runs
  ./test.sh tests/kidxlib -k recover some of them
  ./test.sh --exhaustive             many random examples in place of the same few, and the long fault tests
  ./test.sh --golden DIR             more segments with Kafka's own results

.venv/bin/python -m pytest --help has pytest's own options. CONTRIBUTING.md says more.
HELP
  exit
fi
# Those of the library alone need neither Airflow nor Kafka nor a browser.
of_library='' others=''
for word; do
  case $word in
    tests/kidxlib*) of_library=yes ;;
    tests/* | tests) others=yes ;;
  esac
done
if [[ -n $of_library && -z $others ]]; then
  ./setup.sh dev
  ./setup.sh
else
  ./setup.sh test
fi
.venv/bin/ruff check --quiet
.venv/bin/ruff format --check --quiet
# Once, as each process of the tests would do it by itself: the loops, and the tests, whose assertions pytest rewrites. In a
# new clone that takes five times what to read them takes.
unset PYTHONDONTWRITEBYTECODE # tests start the library in hundreds of processes, too, which find it compiled
{
  .venv/bin/kidx doctor --compile || :
  .venv/bin/python -m pytest --collect-only --quiet "$@" || :
} >/dev/null 2>&1 & # what is missing here, the tests say
compiled=$!
airflow=
if [[ -d .venv-airflow ]]; then # beside Airflow's types
  .venv/bin/mypy --python-executable .venv-airflow/bin/python --cache-dir .mypy_cache/airflow airflow_dags &
  airflow=$!
fi
.venv/bin/mypy
[[ -z $airflow ]] || wait "$airflow"
.venv/bin/lint-imports --no-logo
wait "$compiled"
# A file's tests stay together: they share what takes long to make (tests/conftest.py). Two processes more than there are
# cores, as tests wait for brokers, for Spark and for disks; more than four want more memory.
processes=$(($(nproc) + 2))
exec .venv/bin/python -m pytest --numprocesses "$processes" --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@"
