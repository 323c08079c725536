#!/usr/bin/env bash
# Runs one of the project's jobs on Spark: ./spark-submit.sh JOB [job options] [-- spark-submit options]
# jobs/common/submit does it all, --help says more. Before anything is set up any Python does that setup.sh could take.
set -euo pipefail
root=$(readlink -f -- "$0") # called through a link, too
root=${root%/*}
python=$root/.venv/bin/python
if [[ ! -x $python ]]; then
  for python in ${KIDX_PYTHON:+"$KIDX_PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 ''; do
    "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  done
  [[ -n $python ]] || { "$root/setup.sh" venv; python=$root/.venv/bin/python; } # which says that there is none
fi
exec "$python" -I -S -X utf8 "$root/jobs/common/submit/__main__.py" "$@"
