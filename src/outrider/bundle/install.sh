#!/bin/sh
# Verifies this bundle and installs it on a node without network. Usage: ./install.sh [PREFIX], default /opt/outrider.
# Needs sha256sum, tar and cat; for the container form a Docker engine, for the venv form the Python that bundle.json names.
set -eu
unset PYTHONPATH PYTHONHOME # packages found there would count as installed
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/opt/outrider}
cd "$here"

stack=$(sed -n 's/^ *"stack": "\(.*\)",*$/\1/p' bundle.json)

fail() { echo "error: $1" >&2; echo "  next: $2" >&2; exit 1; }

echo "verifying $(wc -l <SHA256SUMS) files"
sha256sum --check --quiet SHA256SUMS || fail "this bundle is damaged or incomplete" "copy the files named above again"

mkdir -p "$prefix"
for name in project models wheels; do
  if [ -e "$name.tar.000" ]; then
    echo "unpacking $name"
    cat "$name".tar.[0-9]* | tar -C "$prefix" -xf - || fail "$name cannot be unpacked" "is there room on $prefix?"
  fi
done

if [ -e images.tar.000 ]; then
  command -v docker >/dev/null || fail "there is no docker command" "install a Docker engine, or use a venv bundle"
  echo "loading images"
  cat images.tar.[0-9]* | docker load || fail "the images cannot be loaded" "does the Docker engine run?"
  echo "installed; serve with:"
  echo "  cd $prefix && OUTRIDER_CACHE=$prefix OUTRIDER_MODELS=$prefix/models OUTRIDER_PROJECT=$prefix \\"
  echo "    docker compose -f compose/$stack.yaml --profile baseline up --detach --wait"
fi

if [ -e wheels.tar.000 ]; then
  python=$(sed -n 's/^ *"python": "\(.*\)",*$/\1/p' bundle.json)
  command -v "python$python" >/dev/null || fail "there is no python$python" "install that version"
  echo "making $prefix/venv with python$python"
  "python$python" -m venv "$prefix/venv"
  for lock in "$prefix"/wheels/locks/*.lock; do
    "$prefix/venv/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps --require-hashes \
      --find-links "$prefix/wheels" -r "$lock" || fail "$(basename "$lock") cannot be installed" "read pip's words above"
  done
  "$prefix/venv/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps \
    "$prefix"/wheels/outrider-*.whl
  "$prefix/venv/bin/outrider" --version >/dev/null || fail "outrider does not start" "read its words above"
  echo "installed; serve with:"
  echo "  OUTRIDER_CACHE=$prefix OUTRIDER_MODELS=$prefix/models OUTRIDER_PROJECT=$prefix \\"
  echo "    $prefix/venv/bin/outrider serve $prefix/stacks/$stack.yaml baseline"
fi
