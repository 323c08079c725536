# shellcheck shell=bash
# Spark's scripts read this just before they start a JVM. What is redirected here is the JVM's output, not the job's.

# Spark asks every Java for the incubator's vector module and for a package that newer ones no longer have. Java reports
# both at each start, and neither side has a switch for it.
exec 2> >(exec sed -u -E \
  -e '/^WARNING: Using incubator modules: jdk\.incubator\.vector$/d' \
  -e '/^WARNING: package sun\.security\.action not in java\.base$/d' >&2)

# A JVM that serves a Python process has nothing to say on stdout, but Delta's VACUUM does print there.
[[ -z ${_PYSPARK_DRIVER_CONN_INFO_PATH:-} ]] || exec >&2

# Where spark-submit.sh has named the files of this directory one by one, the directory stays away from Java's class path.
[[ -z ${KIDX_CONF_BY_NAME:-} ]] || SPARK_CONF_DIR=$SPARK_HOME/conf
