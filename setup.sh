#!/usr/bin/env bash
# Puts what this project runs on into the project's own directory: Python packages into .venv, Java libraries into .jars.
# spark-submit.sh and test.sh call this every time: where all is in place it compares checksums, says nothing and needs
# no network.
#
#   ./setup.sh          .venv, Delta's jars, and the archive of Java classes that lets Spark start sooner
#   ./setup.sh job      the same for a job that waits: where .venv is new, the archive is left to the next one, and what
#                       the job would compile first is compiled while Spark starts
#   ./setup.sh kafka    these, the jars of Kafka, of Spark's Kafka source and Avro, for tests and benchmarks that compare
#                       with them, an S3 server's, and, where there is Go, another S3 server, which computes checksums
#   ./setup.sh kafka-versions  brokers of older Kafkas, for tests with --exhaustive that compare with these too
#   ./setup.sh kafka-version VERSION  the jars of any one Kafka, into .jars/kafka-VERSION, for `tests.kafka.compare`
#   ./setup.sh venv     .venv alone: enough for whatever starts no Spark, and needs no Java
#   ./setup.sh dev      .venv alone, with the packages of tests, static checks, the site and releases
#   ./setup.sh airflow  .venv-airflow alone: Airflow, to try the DAGs of airflow_dags/ with; needs no Java
#   ./setup.sh browser  Chromium alone, where there is none: tests look at the report with it
#   ./setup.sh emulated qemu, and a Python for Arm with its packages, for tests with --exhaustive of other processors
#   ./setup.sh test     all of these, side by side
#   ./setup.sh lock     rewrite requirements*.lock from pyproject.toml
#
# KIDX_PYTHON names the Python to build both with, JAVA_HOME the Java to use; else both are looked for on PATH. Where uv is
# on PATH it installs the packages, in a fraction of pip's time.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" # called through a link, too

usage() { # the comment above, but for its first line and the marks
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' setup.sh
}

say() { printf 'setup.sh: %s\n' "$*" >&2; }

fail() { # EXIT_CODE MESSAGE: 2 when the machine lacks something, 1 when a step failed
  say "${@:2}"
  exit "$1"
}

sha256() { # FILE ...
  if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

# One set-up at a time; who comes second finds the work done. pip and Ivy inherit the descriptor: if this script alone
# is killed, the next set-up waits until they have ended too. Where there is no flock we go on without.
locked=
one_at_a_time() {
  [[ -z $locked ]] || return 0
  only_of_this_checkout
  mkdir -p .jars
  exec 9>.jars/lock
  if command -v flock >/dev/null && ! flock --nonblock 9; then
    say "waiting for another set-up to end …"
    flock 9
  fi
  locked=yes
}

# Who works on two branches may link .venv and .jars of one checkout into another. What is made anew here would take the
# first one's away: its stamps, its project's entry and its file of Java classes name its own directory.
only_of_this_checkout() {
  local link checkout
  for link in .venv .venv-airflow .jars; do
    [[ -L $link ]] || continue
    checkout=$(dirname -- "$(readlink -f -- "$link")")
    [[ ! -f $checkout/setup.sh ]] ||
      fail 2 "$link is that of $checkout, and would be set up for this checkout; nothing was changed." \
        "Run $checkout/setup.sh, or remove the link: rm $PWD/$link"
  done
}

# ---- Python ----

DEV_LOCK=requirements-dev.lock
a_job_waits= # so that it should wait for what it needs alone
is_new=      # one of the environments was made just now

# Every candidate is really started: a name on PATH may be a version manager's stub for a version that is not installed,
# and Debian's python3 comes without the venv module's ensurepip.
find_python() {
  local fits='import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'
  local candidate candidates=(python3.13 python3.12 python3.11 python3.14 python3)
  [[ -z ${KIDX_PYTHON:-} ]] || candidates=("$KIDX_PYTHON")
  for candidate in "${candidates[@]}"; do
    if "$candidate" -I -c "$fits" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail 2 "no Python 3.11 to 3.14 with its venv module (tried: ${candidates[*]}); install one," \
    "e.g. apt-get install python3 python3-venv, or set KIDX_PYTHON to its path"
}

# -I keeps the caller's PYTHONPATH and user packages out: pip would take what is there for installed.
pip() { # VENV ARGUMENT ...
  "$1/bin/python" -I -m pip --disable-pip-version-check --no-input "${@:2}" >>"$1/setup.log" 2>&1 && return
  tail -n 15 "$1/setup.log" >&2
  fail 1 "pip failed; above is the end of $1/setup.log"
}

has_uv() { type -P uv >/dev/null; }

# uv, where it is there, installs in a fraction of pip's time. Its cache alone first: else it asks for each package whether it
# is still the same, and where no answer says how long that holds it builds pyspark, which comes as sources, anew. uv has
# settings of its own, so where it fails pip is to try.
by_uv() { # VENV ARGUMENT ...
  if has_uv; then
    uv --offline --quiet pip install --python "$1/bin/python" "${@:2}" >>"$1/setup.log" 2>&1 && return
    uv --quiet pip install --python "$1/bin/python" "${@:2}" >>"$1/setup.log" 2>&1 && return
    say "uv failed, so pip installs; what uv said is in $1/setup.log"
  fi
  ensure_pip "$1"
  return 1
}

ensure_pip() { # VENV: one that was made for uv has none
  [[ -x $1/bin/pip3 ]] || "$1/bin/python" -I -m ensurepip >>"$1/setup.log" 2>&1
}

install_packages() { # VENV LOCK
  by_uv "$1" --require-hashes -r "$2" && return
  # pip unpacks on one core, so three install a share each: one makes a wheel of pyspark, which comes as sources and is as
  # large as all others together. A lock file names all packages, so none has to look for what others need.
  local share pid pids=()
  for share in 0 1 2; do
    awk -v share="$share" '/^[^ ]/ { its = /^pyspark==/ ? 0 : 1 + others++ % 2 } its == share' "$2" >"$1/share-$share.lock"
    [[ -s $1/share-$share.lock ]] || continue
    pip "$1" install --no-compile --no-deps --require-hashes -r "$1/share-$share.lock" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid"
  done
}

# pip compiles on one core, and uv does not at all. A package may bring files for other Pythons, which do not compile.
# Nobody needs its tests.
compile_packages() { # VENV
  nice "$1/bin/python" -I -m compileall -qq -j 0 -x '/tests/' "$1/lib" >>"$1/setup.log" 2>&1 || true
}

# A build of the sample leaves the library's loops compiled for this processor, on one core and in eight seconds. Where it
# fails, the job that waits compiles them, or says why it cannot.
compile_loops() {
  local directory=.jars/loops.made
  rm -rf "$directory"
  # before the project has its entry in .venv
  local kidx='import sys; sys.path.insert(0, "."); from kidxlib.cli.main import main; main()'
  .venv/bin/python -I -c "$kidx" build --source samples/kafka-logs --index-dir "$directory/index" \
    --catalog "$directory/catalog" || true
  rm -rf "$directory"
}

# Goes on when this script has ended, beside Spark's start: the job waits for the loops (jobs/common/spark/engine.py) by the
# lock, which this process has before the script ends, and for nothing else.
compile_meanwhile() { # VENV
  say "compiling the library's loops for this processor …"
  exec 8>.jars/loops.lock
  flock 8
  {
    compile_loops
    exec 8>&-
    compile_packages "$1"
  } >>"$1/setup.log" 2>&1 &
  exec 8>&-
}

# What an environment was built from. The directory counts too: scripts in it and the project's own entry there name it.
packages_key() { echo "$PWD $(cat "$1" setup.sh | sha256)"; } # LOCK
project_key() { sha256 pyproject.toml; }

stamped() { # VENV NAME KEY: that step was finished, with exactly this key
  [[ -x $1/bin/python && -f $1/$2.stamp && $(<"$1/$2.stamp") == "$3" ]]
}

set_up_packages() { # VENV LOCK [PART]: PART is a lock file of the same versions, but fewer
  stamped "$1" packages "$(packages_key "$2")" && return
  one_at_a_time
  stamped "$1" packages "$(packages_key "$2")" && return
  local python
  if [[ -n ${3-} ]] && stamped "$1" packages "$(packages_key "$3")"; then
    say "adding the packages of tests to $1 …"
  else
    python=$(find_python)
    say "setting up $1 with $python …"
    # From nothing: then it is the lock exactly, and what an interrupted set-up left does no harm.
    # The stamps go first, so that a half-removed one does not look finished.
    rm -f "$1"/*.stamp
    rm -rf "$1"
    if has_uv; then
      "$python" -I -m venv --without-pip "$1" # to install pip takes seconds
    else
      "$python" -I -m venv "$1"
    fi
  fi
  rm -f "$1/packages.stamp"
  install_packages "$1" "$2"
  [[ $2 != "$DEV_LOCK" ]] || ensure_pip "$1" # tests install the wheel with it
  is_new=yes
  if [[ -n $a_job_waits ]] && command -v flock >/dev/null; then
    compile_meanwhile "$1"
  else
    compile_packages "$1"
  fi
  packages_key "$2" >"$1/packages.stamp"
}

# With the packages that jobs and commands need, or with those of tests, too, which serve both.
set_up_venv() { # [dev]
  local lock=requirements.lock
  [[ ${1-} != dev && ! -x .venv/bin/pytest ]] || lock=$DEV_LOCK # who has those of tests keeps them
  stamped .venv packages "$(packages_key requirements.lock)" || stamped .venv packages "$(packages_key "$DEV_LOCK")" ||
    { only_of_this_checkout && rm -rf .jars/spark.jsa*; } # made of this .venv's jars
  set_up_packages .venv "$lock" requirements.lock
  stamped .venv project "$(project_key)" && return
  one_at_a_time
  stamped .venv project "$(project_key)" && return
  local project=(--no-deps --no-build-isolation -e .)
  by_uv .venv "${project[@]}" || pip .venv install "${project[@]}"
  project_key >.venv/project.stamp
}

set_up_airflow() { set_up_packages .venv-airflow requirements-airflow.lock; }

# ---- Java ----

# The Java that Spark's own scripts will take. Its `release` file tells the version without the tenth of a second that
# `java -version` takes.
java_command() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java path about
  local version='(version |JAVA_VERSION=)"((1\.)?([0-9]+)[^"]*)"' # 1.8.0_292 is Java 8
  local needed="Spark needs Java 17 or newer:"
  needed+=" install it, e.g. apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
  path=$(type -P "$java") || fail 2 "$java not found; $needed"
  path=$(readlink -f "$path")
  about=$(cat "${path%/bin/java}/release" 2>/dev/null || "$path" -version 2>&1) || true
  [[ $about =~ $version ]] || fail 2 "$path does not tell its version; $needed"
  ((BASH_REMATCH[4] >= 17)) || fail 2 "$path is Java ${BASH_REMATCH[2]}; $needed"
  echo "$path"
}

jars_match() { # DIRECTORY NAME: it holds the jars of conf/jars/NAME.sha256, all of them and no other
  (LC_ALL=C && cd "$1" && sha256 -- *.jar) 2>/dev/null | cmp -s - "conf/jars/$2.sha256"
}

# The jars that LIST names, into DIRECTORY, fetched by the Ivy that pyspark brings along.
fetch_jars() { # LIST DIRECTORY LABEL
  say "fetching $3's jars …"
  local ivy=(.venv/lib/python3.*/site-packages/pyspark/jars/ivy-*.jar) log=$2.log
  rm -rf "$2"
  "$java" -Divy.cache.dir="$PWD/.jars/ivy" -Divy.default.ivy.user.dir="$PWD/.jars/ivy" -jar "${ivy[0]}" -warn \
    -settings conf/jars/ivysettings.xml -ivy "$1" \
    -retrieve "$PWD/$2/[artifact]-[revision](-[classifier]).[ext]" >"$log" 2>&1 ||
    fail 1 "cannot fetch $3's jars; is there a network? Ivy's output is in $log"
  rm -rf .jars/ivy "$log" # Ivy keeps a second copy of all jars; after a failure the next try goes on from it
}

# The jars that conf/jars/NAME.xml lists, into .jars/NAME.
set_up_jars() { # NAME LABEL
  jars_match ".jars/$1" "$1" && return
  one_at_a_time
  jars_match ".jars/$1" "$1" && return
  local part=.jars/$1.part
  fetch_jars "conf/jars/$1.xml" "$part" "$2"
  jars_match "$part" "$1" || fail 1 "the jars in $part are not those of conf/jars/$1.sha256"
  rm -rf ".jars/$1"
  mv "$part" ".jars/$1"
  [[ $1 != delta ]] || rm -rf .jars/spark.jsa*
}

# The Kafkas that every run of the tests compares with: the one that is promised, and the one beside it. Older ones take
# other people's jars from the latter (tests/support/kafka/jars.py).
KAFKA_BESIDE=kafka-4.3.1
set_up_kafkas() {
  set_up_jars kafka Kafka
  set_up_jars "$KAFKA_BESIDE" "the Kafka beside it"
}

# Any Kafka, into .jars/kafka-VERSION. Of one that has no list of its own, the list is kafka.xml with its version in place
# of the promised one: what other people's jars it needs may have changed since, and nobody knows its checksums here.
set_up_kafka_version() { # VERSION
  local promised list=.jars/kafka-$1.xml
  promised=$(sed -n 's/.*name="kafka-clients" rev="\([^"]*\)".*/\1/p' conf/jars/kafka.xml)
  if [[ $1 == "$promised" ]]; then
    set_up_kafkas
  elif [[ -f conf/jars/kafka-$1.xml ]]; then
    set_up_kafkas
    set_up_jars "kafka-$1" "Kafka $1"
  elif [[ ! -d .jars/kafka-$1 ]]; then
    one_at_a_time
    say "no checksums of Kafka $1's jars are known: they are taken as they come, beside kafka.xml's jars of other projects"
    sed "/org=\"org.apache.kafka\"/s/rev=\"$promised\"/rev=\"$1\"/" conf/jars/kafka.xml >"$list"
    fetch_jars "$list" ".jars/kafka-$1.part" "Kafka $1"
    mv ".jars/kafka-$1.part" ".jars/kafka-$1"
    rm "$list"
  fi
}

# Most of the time that Spark takes to start goes into loading and verifying classes from its jars. Java can keep those
# that a run has loaded in a file (JEP 350) and map it when it starts the next time; it does without where the class path
# or a jar is not what it was. A truncated file would kill it, so the size counts. A Java that makes no such files
# costs one try; a build that fails says nothing about Java, so the next set-up tries again.
archive_key() {
  echo "$PWD $(cat "${java%/bin/java}/release" conf/spark-defaults.conf | sha256) $(wc -c <.jars/spark.jsa)"
} 2>/dev/null

archive_is_current() { [[ -f .jars/spark.jsa.key && $(<.jars/spark.jsa.key) == "$(archive_key)" ]]; }

set_up_class_archive() {
  archive_is_current && return
  one_at_a_time
  archive_is_current && return
  local archive=.jars/spark.jsa directory=.jars/spark.jsa.made
  say "letting Java note down what Spark loads, so that it starts sooner from now on (a minute; some minutes where kidx compiles its loops first) …"
  rm -rf "$archive"*
  mkdir "$directory"
  # Java writes the archive when it ends, and with this variable the job ends after it (jobs/common/spark/session.py). Where that
  # takes too long, or Java does not end well, the job fails.
  if ! env -u SPARK_HOME -u SPARK_CONF_DIR KIDX_CLASS_ARCHIVE="$PWD/$directory/spark.jsa" ./spark-submit.sh build_index \
    --source samples/kafka-logs --index-dir "$directory/index" --catalog "$directory/catalog" >"$directory/log" 2>&1; then
    rm -f "$directory/spark.jsa"
    say "the sample's build failed, so Spark starts without for now; what it said is in $directory/log"
    return
  elif [[ -s $directory/spark.jsa ]]; then
    mv "$directory/spark.jsa" "$archive"
  else
    say "this Java makes no such file; Spark starts without"
  fi
  rm -rf "$directory"
  archive_key >"$archive.key"
}

# ---- Go ----

# The S3 server that computes checksums of what it stores, for the tests that compare ours with them. conf/versitygw pins
# it and all that it is made of. Who cannot have it does without: only those tests are skipped then.
set_up_versitygw() {
  local directory=.jars/versitygw made=.jars/versitygw.made key
  key=$(cat conf/versitygw/go.mod conf/versitygw/go.sum | sha256)
  [[ -x $directory/versitygw && -f $directory/key && $(<"$directory/key") == "$key" ]] && return
  one_at_a_time
  [[ -x $directory/versitygw && -f $directory/key && $(<"$directory/key") == "$key" ]] && return
  if ! type -P go >/dev/null; then
    say "there is no Go to build versitygw with: the tests that need this S3 server are skipped"
    return
  fi
  say "building versitygw, an S3 server for tests (some minutes) …"
  rm -rf "$directory" "$made"
  mkdir "$made"
  # Modules and compiled packages are 800 MB, which nobody needs after this; -modcacherw lets us remove them.
  if GOFLAGS=-modcacherw CGO_ENABLED=0 GOMODCACHE="$PWD/$made/modules" GOCACHE="$PWD/$made/cache" GOWORK=off \
    go build -C conf/versitygw -mod=readonly -trimpath -ldflags='-s -w' -o "$PWD/$made/versitygw" \
    github.com/versity/versitygw/cmd/versitygw >"$made/log" 2>&1; then
    rm -rf "$made/modules" "$made/cache" "$made/log"
    echo "$key" >"$made/key"
    mv "$made" "$directory"
  else
    rm -rf "$made/modules" "$made/cache"
    say "versitygw was not built, and the tests that need this S3 server are skipped; Go's output is in $made/log"
  fi
}

# ---- the browser ----

# Chromium without a window, which tests look at the report with: Debian's, with the libraries that this machine lacks,
# unpacked into .jars; nothing is installed. Debian keeps only its newest version, so none is pinned. Who has a Chromium
# on PATH uses that; who has neither does without, and those tests are skipped.
set_up_chromium() {
  local directory=.jars/chromium made=.jars/chromium.made
  [[ ! -x $directory/chromium ]] || return 0
  ! type -P chromium-headless-shell chromium >/dev/null || return 0
  one_at_a_time
  [[ ! -x $directory/chromium ]] || return 0
  if ! type -P apt-get >/dev/null || ! type -P dpkg-deb >/dev/null; then
    say "there is no Chromium, nor Debian's apt-get to fetch it with: the tests that need a browser are skipped"
    return 0
  fi
  say "fetching Chromium, which tests look at the report with …"
  rm -rf "$made"
  if unpack_debian "$made" "$(dpkg --print-architecture)" chromium-headless-shell fonts-dejavu-core &&
    write_chromium "$made"; then
    rm -rf "$directory"
    mv "$made" "$directory"
  else
    rm -rf "$made/lists" "$made/cache" "$made/root"
    say "Chromium was not fetched, and the tests that need a browser are skipped; what apt-get said is in $made/log"
  fi
}

# Debian's packages with what they need, unpacked into DIRECTORY/root: for this machine what it lacks, for another kind of
# machine all. Nothing is installed. apt's own directories stay as they are, so nobody needs to be root, and no other apt is in
# the way. What apt-get says is in DIRECTORY/log until all is done.
unpack_debian() { # DIRECTORY ARCHITECTURE PACKAGE ...
  local made=$PWD/$1 package
  mkdir -p "$made/lists/partial" "$made/cache/archives/partial" "$made/root"
  local apt=(apt-get -y -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Dir::State::lists="$made/lists"
    -o Dir::Cache="$made/cache")
  if [[ $2 != "$(dpkg --print-architecture)" ]]; then
    : >"$made/status" # what this machine has is of no use to the other one
    apt+=(-o APT::Architecture="$2" -o APT::Architectures="$2" -o Dir::State::status="$made/status")
  fi
  {
    "${apt[@]}" update &&
      "${apt[@]}" install --download-only --no-install-recommends "${@:3}" &&
      for package in "$made"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$made/root" || return 1
      done
  } >"$made/log" 2>&1 || return 1
  rm -rf "$made/lists" "$made/cache" "$made/status" "$made/log"
}

write_chromium() { # DIRECTORY
  [[ -x $1/root/usr/lib/chromium/chromium-headless-shell ]] || return 1
  cat >"$1/chromium" <<'SCRIPT'
#!/bin/sh
# The Chromium beside this script, with its libraries and fonts.
root=$(dirname "$(readlink -f "$0")")/root
for directory in "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/pulseaudio; do
  LD_LIBRARY_PATH=$directory:$LD_LIBRARY_PATH
done
export LD_LIBRARY_PATH XDG_DATA_HOME="$root/usr/share"
[ ! -d "$root/etc/fonts" ] || export FONTCONFIG_PATH="$root/etc/fonts"
exec "$root/usr/lib/chromium/chromium-headless-shell" "$@"
SCRIPT
  chmod +x "$1/chromium"
}

# ---- other processors ----

# qemu, which runs the programs of other processors, and Debian's Python for Arm with the packages of kidx: for the tests with
# --exhaustive that run the library there.
set_up_emulated() {
  local directory=.jars/emulated made=.jars/emulated.made key emulator
  key=$(sha256 requirements-executors.lock)
  [[ -f $directory/key && $(<"$directory/key") == "$key" ]] && return
  one_at_a_time
  [[ -f $directory/key && $(<"$directory/key") == "$key" ]] && return
  if ! type -P apt-get >/dev/null || ! type -P dpkg-deb >/dev/null; then
    fail 2 "there is no Debian's apt-get to fetch qemu and a Python for Arm with"
  fi
  say "fetching qemu, and a Python for Arm with its packages …"
  rm -rf "$made"
  unpack_debian "$made/qemu" "$(dpkg --print-architecture)" qemu-user-static ||
    fail 1 "qemu was not fetched; what apt-get said is in $made/qemu/log"
  unpack_debian "$made/aarch64" arm64 python3 libstdc++6 ||
    fail 1 "the Python for Arm was not fetched; what apt-get said is in $made/aarch64/log"
  for emulator in qemu-aarch64-static qemu-x86_64-static; do
    cp -L "$made/qemu/root/usr/bin/$emulator" "$made/"
  done
  rm -rf "$made/qemu"
  install_for_arm "$made"
  echo "$key" >"$made/key"
  rm -rf "$directory"
  mv "$made" "$directory"
}

# pip chooses wheels of another machine where it is told which ones fit: here those for Debian 12's glibc and older ones.
install_for_arm() { # DIRECTORY
  local python version fits=(--implementation cp) glibc
  version=("$1"/aarch64/root/usr/bin/python3.[0-9][0-9])
  for glibc in _2_34 _2_28 _2_27 _2_24 _2_17 2014; do
    fits+=(--platform "manylinux${glibc}_aarch64")
  done
  python=$(find_python)
  "$python" -I -m venv "$1/pip"
  pip "$1/pip" install --no-compile --no-deps --require-hashes --only-binary=:all: --target "$1/aarch64/packages" \
    --python-version "${version[0]##*/python}" "${fits[@]}" -r requirements-executors.lock
  rm -rf "$1/pip"
}

# ---- the lock files ----

write_lock() {
  local python directory
  python=$(find_python)
  directory=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory's name now, not when the trap runs
  trap "rm -rf '$directory'" EXIT
  "$python" -I -m venv "$directory"
  "$directory/bin/python" -I -m pip --disable-pip-version-check --quiet install uv
  local compile=("$directory/bin/uv" --quiet pip compile --universal --python-version 3.11
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-header)
  "${compile[@]}" pyproject.toml --all-extras --group dev -o "$DEV_LOCK"
  # The same versions: what jobs and commands need.
  "${compile[@]}" pyproject.toml --all-extras --group build --constraints "$DEV_LOCK" -o requirements.lock
  # The same versions: what executors bring along. Spark itself brings the two that are left out to every node.
  "${compile[@]}" pyproject.toml --extra spark --constraints requirements.lock \
    --no-emit-package pyspark --no-emit-package py4j -o requirements-executors.lock
  "${compile[@]}" --group airflow -o requirements-airflow.lock
}

case ${1-} in
  -h | --help) usage ;;
  '' | job | kafka | test)
    java=$(java_command) # first: it would be a pity to say so after a minute
    if [[ ${1-} == test ]]; then
      one_at_a_time # for all: each would wait for the others
      set_up_airflow &
      airflow=$!
      set_up_versitygw &
      versitygw=$!
      set_up_chromium &
      chromium=$!
    fi
    [[ ${1-} != job ]] || a_job_waits=yes
    set_up_venv "$([[ -z ${1-} || $1 == job ]] || echo dev)"
    set_up_jars delta Delta
    if [[ ${1-} == kafka || ${1-} == test ]]; then
      set_up_kafkas
      set_up_jars tiered "tiered storage"
      set_up_jars s3proxy s3proxy
      set_up_jars spark-kafka "Spark's Kafka and Avro"
      [[ $1 == test ]] || set_up_versitygw
    fi
    [[ -n ${KIDX_CLASS_ARCHIVE:-} || (-n $a_job_waits && -n $is_new) ]] || set_up_class_archive
    if [[ ${1-} == test ]]; then
      wait "$airflow"
      wait "$versitygw"
      wait "$chromium"
    fi
    ;;
  kafka-versions)
    java=$(java_command)
    set_up_venv # for its Ivy
    set_up_kafkas
    for list in conf/jars/kafka-*.xml; do
      version=${list#conf/jars/kafka-}
      version=${version%.xml}
      set_up_jars "kafka-$version" "Kafka $version"
    done
    ;;
  kafka-version)
    [[ ${2-} =~ ^[0-9][0-9A-Za-z.-]*$ ]] || fail 2 "kafka-version ${2-}: expected a version of Kafka, such as 4.4.0"
    java=$(java_command)
    set_up_venv # for its Ivy
    set_up_kafka_version "$2"
    ;;
  venv) set_up_venv ;;
  dev) set_up_venv dev ;;
  airflow) set_up_airflow ;;
  browser) set_up_chromium ;;
  emulated) set_up_emulated ;;
  lock) write_lock ;;
  *) fail 2 "no such target: $1; --help says what there is" ;;
esac
