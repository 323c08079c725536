#!/usr/bin/env bash
# Makes all that a release publishes, and publishes nothing.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" # called through a link, too

usage() {
  cat <<'HELP'
Usage: ./release.sh [--rehearse] [DIRECTORY]

Makes DIRECTORY anew, dist/release if none is named: the wheel and the sources for Python, the archive for Spark without a checkout, and SHA256SUMS. Checks that

  - nothing is changed that is not committed, and no tag has this version;
  - CHANGELOG.md has a heading for it, and nothing is left under "Unreleased";
  - twine finds nothing wrong with the metadata;
  - the wheel installs in a new environment, and its kidx says the version.

With --rehearse the first two are passed over. Nothing is uploaded. After it, once ./test.sh has passed on this commit:

  git tag -s vVERSION && git push origin vVERSION
  .venv/bin/python -m twine upload dist/release/kidx-VERSION*
  attach dist/release/kidx-spark-VERSION.tar.gz and dist/release/SHA256SUMS to the release

The version is that of pyproject.toml.
HELP
}

fail() {
  printf 'release.sh: %s\n' "$*" >&2
  exit 2
}

rehearse=
directory=
for word; do
  case $word in
    --rehearse) rehearse=yes ;;
    -h | --help)
      usage
      exit
      ;;
    -*) fail "no such option: $word; --help says what there is" ;;
    *)
      [[ -z $directory ]] || fail "$word: one directory at most"
      directory=$word
      ;;
  esac
done
directory=${directory:-dist/release}
# It is made anew, so it holds nothing but what an earlier release made.
[[ ! -e $directory || -z $(ls -A "$directory") || -f $directory/SHA256SUMS ]] ||
  fail "$directory holds other files than a release; name a new directory"

./setup.sh dev
python=.venv/bin/python
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
if [[ -z $rehearse ]]; then
  [[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed; commit or remove them"
  [[ -z $(git tag --list "v$version") ]] || fail "v$version is tagged already; raise the version in pyproject.toml"
  grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no heading '## $version'"
  ! sed -n '/^## Unreleased/,/^## /{/^- /p}' CHANGELOG.md | grep -q . ||
    fail "CHANGELOG.md has entries under 'Unreleased'; put them below '## $version'"
fi

# It is put in place whole, once all is checked.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
made=$scratch/release
mkdir "$made"
# The time of the commit, so that the same sources give the same bytes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
"$python" -m hatchling build -t wheel -t sdist -d "$made" >&2
"$python" -m twine check --strict "$made"/kidx-* >&2
./spark-submit.sh package --directory "$scratch/package" --release "$made/kidx-spark-$version.tar.gz" >&2
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -I -m pip --disable-pip-version-check --no-input --quiet install "$made/kidx-$version"-*.whl
"$scratch/venv/bin/kidx" --version | grep -qF "kidx $version" || fail "the wheel's kidx does not say $version"
(cd "$made" && sha256sum -- kidx-* >SHA256SUMS)
rm -rf "$directory"
mkdir -p "$(dirname -- "$directory")"
mv "$made" "$directory"
cat "$directory/SHA256SUMS"
