#!/usr/bin/env bash
# Runs one of the project's jobs on Spark: ./spark-submit.sh JOB [job options] [-- spark-submit options]
#
#   ./spark-submit.sh package [--folder DIR]     make what a cluster's nodes need: docs/clusters.md
#   ./spark-submit.sh --dry-run JOB …            print the command and its environment, and start nothing
#   ./spark-submit.sh --in-image DIR JOB …       where the containers of a Kubernetes cluster have this folder
#   ./spark-submit.sh --version                  print the project's version
#
# Unless told otherwise Spark runs on this machine, with all its cores. SPARK_HOME, SPARK_CONF_DIR, SPARK_LOCAL_IP,
# PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are respected where they are set.
#
# In client mode the job is an ordinary Python process that starts Spark's bin/spark-submit by itself, with the options
# in PYSPARK_SUBMIT_ARGS. Started the other way round, spark-submit merges a job's stderr into its stdout, so that
# `--json` could no longer be told from messages, hides the terminal from it, and boots a JVM before the job can say
# that an option is misspelt. With --deploy-mode cluster the job runs elsewhere and there is only that way.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd) # called through a link, too

fail() {
  printf 'spark-submit.sh: %s\n' "$*" >&2
  exit 2
}

list_jobs() {
  local file
  for file in "$root"/jobs/*.py; do
    file=${file##*/}
    [[ $file == __init__.py ]] || echo "${file%.py}"
  done
}

no_such_job() { # NAME
  local nearest='' jobs
  jobs=$(list_jobs)
  if [[ -x $root/.venv/bin/python ]]; then
    nearest=$("$root/.venv/bin/python" -c 'import difflib, sys
print(*difflib.get_close_matches(sys.argv[1], sys.argv[2].split(), n=1))' "$1" "$jobs package")
  fi
  fail "no such job: $1; ${nearest:+did you mean $nearest? }there are: $(paste -sd ' ' - <<<"$jobs") package"
}

usage() {
  local job
  printf 'Usage: ./spark-submit.sh [--dry-run] [--in-image DIR] JOB [job options] [-- spark-submit options]\n'
  printf '       ./spark-submit.sh package [--folder DIR]\n       ./spark-submit.sh --version\n'
  printf '\nJobs, each with its own --help:\n'
  for job in $(list_jobs); do
    # The docstring's first line stands beside the quotes or below them.
    printf '  %-15s %s\n' "$job" "$(sed -n '/^"""/{s/^"""\\\{0,1\}//;/^$/n;s/""".*//;p;q;}' "$root/jobs/$job.py")"
  done
  printf '\n  %-15s %s\n' package "make what a cluster's nodes need: the modules and an environment of Python packages"
  printf '\nFor a cluster, for example: -- --master spark://host:7077 --conf spark.executor.memory=4g\n'
  printf 'With --dry-run the command is printed in place of being run.\n'
}

# pyspark splits PYSPARK_SUBMIT_ARGS with Python's shlex, which knows these quotes but not those of bash's printf %q.
quoted() { # WORD ...
  local word
  for word; do
    word=${word//\\/\\\\}
    printf '"%s" ' "${word//\"/\\\"}"
  done
}

# Java takes classes from the archive that setup.sh has made (or makes it, for setup.sh) only where nothing but jars is on
# the class path: Delta's jars go there, and conf/ leaves it (spark-env.sh sees to that), its files handed over by name.
use_class_archive() {
  local option=-XX:SharedArchiveFile=$root/.jars/spark.jsa
  [[ -z ${KIDX_CLASS_ARCHIVE:-} ]] || option=-XX:ArchiveClassesAtExit=$KIDX_CLASS_ARCHIVE
  SPARK_SUBMIT_OPTS="$(quoted "$option" "-Dlog4j2.configurationFile=$root/conf/log4j2.properties")${SPARK_SUBMIT_OPTS:-}"
  KIDX_CONF_BY_NAME=yes
  options=(--properties-file "$root/conf/spark-defaults.conf" "${options[@]}")
}

# As bash reads it: words with other characters than these in single quotes.
print_words() { # WORD ...
  local word mark="'"
  for word; do
    if [[ -z $word || $word == *[!a-zA-Z0-9_./:,=@%+-]* ]]; then
      word=$mark${word//$mark/$mark\\$mark$mark}$mark
    fi
    printf ' %s' "$word"
  done
}

dry_run='' image=''
while (($#)); do
  case $1 in
    --dry-run) dry_run=yes ;;
    --in-image)
      [[ ${2-} == /* ]] || fail "--in-image: ${2:-nothing}; expected the folder's path in the image, from / on"
      image=${2%/}
      shift
      ;;
    *) break ;;
  esac
  shift
done
(($#)) || { usage >&2 && exit 2; }
job=$1
shift
[[ $job != -h && $job != --help ]] || { usage && exit; }
[[ $job != --version ]] || { sed -n 's/^version = "\(.*\)"$/kidx \1/p' "$root/pyproject.toml" && exit; }
python=$root/.venv/bin/python
export PYTHONSAFEPATH=1 # paths in options start at the caller's folder, imports do not

if [[ $job == package ]]; then
  [[ -z $dry_run$image ]] || fail "package has no such option; there is --folder"
  "$root/setup.sh" venv
  PYTHONPATH=$root exec "$python" -m jobs.common.package "$@"
fi
[[ $job != *[!a-z0-9_]* && $job != __init__ && -f $root/jobs/$job.py ]] || no_such_job "$job"

python_path=$root${PYTHONPATH:+:$PYTHONPATH}
command=(-m "jobs.$job")
while (($#)) && [[ $1 != -- ]]; do
  if [[ $1 == --help || $1 == -h ]]; then
    "$root/setup.sh" venv
    PYTHONPATH=$python_path exec "$python" "${command[@]}" --help
  fi
  command+=("$1")
  shift
done
(($# == 0)) || shift # the --

"$root/setup.sh"

# Spark's options go on as they are, but for those that this script has its own share in.
# The 4: locally too a task is tried again, so that a worker which a vanishing file killed costs one attempt.
master='local[*,4]' deploy_mode=client jars='' class_path='' py_files='' options=(--name "$job")
while (($#)); do
  case $1 in
    --master | --deploy-mode | --jars | --driver-class-path | --py-files | --conf | -c)
      (($# > 1)) || fail "$1 needs a value"
      set -- "${1/#-c/--conf}=$2" "${@:3}"
      continue
      ;;
    -h | --help | --version) fail "$1 after -- is spark-submit's: $root/.venv/bin/spark-submit $1 shows it" ;;
    --master=* | --conf=spark.master=*) master=${1##*master=} ;;
    --deploy-mode=* | --conf=spark.submit.deployMode=*) deploy_mode=${1##*=} ;;
    --jars=*) jars+=,${1#*=} ;;
    --driver-class-path=* | --conf=spark.driver.extraClassPath=*) class_path+=:${1##*=} ;;
    --py-files=*) py_files+=,${1#*=} ;;
    --conf=spark.pyspark.python=*) PYSPARK_PYTHON=${1##*=} options+=("$1") ;;
    --conf=spark.pyspark.driver.python=*) PYSPARK_DRIVER_PYTHON=${1##*=} options+=("$1") ;;
    *) options+=("$1") ;;
  esac
  shift
done
[[ -z $image || $master == k8s://* ]] || fail "--in-image: only with --master k8s://…, not $master"
own=${image:+local://$image}
own=${own:-$root}
delta=("$root"/.jars/delta/*.jar)
delta=("${delta[@]/#"$root"/$own}")
if [[ $master == local* ]]; then
  SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} # no port open to others, no look-up of this machine's name
  [[ -n ${SPARK_HOME:-}${SPARK_CONF_DIR:-} ]] || use_class_archive
  class_path=$(IFS=: && echo "${delta[*]}")$class_path
else
  jars=,$(IFS=, && echo "${delta[*]}")$jars
  if [[ -n $image ]]; then
    options+=(--conf "spark.pyspark.python=$image/.venv/bin/python")
  elif [[ ,$py_files != */kidx.zip* ]]; then
    PYTHONPATH=$python_path "$python" -c 'import pathlib, sys; from jobs.common.package import zip_modules
zip_modules(pathlib.Path(sys.argv[1]))' "$root/.jars/kidx.zip"
    py_files=,$root/.jars/kidx.zip$py_files
  fi
fi
submit=(--master "$master" --deploy-mode "$deploy_mode" ${jars:+--jars "${jars#,}"}
  ${py_files:+--py-files "${py_files#,}"} ${class_path:+--driver-class-path "${class_path#:}"} "${options[@]}")

if [[ -z ${SPARK_HOME:-} ]]; then
  spark=("$root"/.venv/lib/python3.*/site-packages/pyspark)
  SPARK_HOME=${spark[0]} SPARK_CONF_DIR=${SPARK_CONF_DIR:-$root/conf}
elif [[ -f $SPARK_HOME/python/pyspark/__init__.py ]]; then
  # A Spark with a Python side of its own: both sides must be of one version.
  py4j=("$SPARK_HOME"/python/lib/py4j-*-src.zip)
  python_path=$SPARK_HOME/python:${py4j[0]}:$python_path
fi

environment=() names=(HADOOP_CONF_DIR YARN_CONF_DIR SPARK_HOME SPARK_CONF_DIR SPARK_LOCAL_IP SPARK_SUBMIT_OPTS
  KIDX_CONF_BY_NAME JAVA_HOME)
if [[ $deploy_mode == cluster ]]; then
  # The driver too runs elsewhere, with the Python of the executors: YARN hands it these two variables.
  PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python}
  names+=(PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON)
  command=("$SPARK_HOME/bin/spark-submit" "${submit[@]}" "$own/jobs/$job.py" "${command[@]:2}")
else
  PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python} PYSPARK_DRIVER_PYTHON=${PYSPARK_DRIVER_PYTHON:-$python}
  PYTHONPATH=$python_path PYTHONHASHSEED=${PYTHONHASHSEED:-0} # as spark-submit has it
  PYSPARK_SUBMIT_ARGS="$(quoted "${submit[@]}")pyspark-shell"
  names+=(PYTHONPATH PYTHONSAFEPATH PYTHONHASHSEED PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS)
  command=("$PYSPARK_DRIVER_PYTHON" "${command[@]}")
fi
for name in "${names[@]}"; do
  [[ -z ${!name:-} ]] || environment+=("$name=${!name}")
done

if [[ -n $dry_run ]]; then
  printf 'env'
  for variable in "${environment[@]}"; do
    print_words "$variable" && printf ' \\\n   '
  done
  print_words "${command[@]}" && echo
  exit
fi
exec env "${environment[@]}" "${command[@]}"
