#!/bin/sh
# Verifies this bundle and installs it on a node without network. Usage: [PYTHON=/path/python3] ./install.sh [PREFIX]
# PREFIX is /opt/outrider if not given; PYTHON is the node's Python for the venv form, else the one found on PATH.
# Needs sha256sum, tar and cat; for the container form a Docker engine, for the venv form the Python that bundle.json names.
set -eu
unset PYTHONPATH PYTHONHOME # packages found there would count as installed
prefix=${1:-/opt/outrider}
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
cd "$(dirname "$0")"

fact() { sed -n "s/^ *\"$1\": \"\(.*\)\",*\$/\1/p" bundle.json; }
fail() { echo "error: $1" >&2; echo "  next: $2" >&2; exit 1; }
stack=$(fact stack)

echo "verifying $(wc -l <SHA256SUMS) files"
sha256sum --check --quiet SHA256SUMS || fail "this bundle is damaged or incomplete" "copy the files named above again"

# The node's Python is looked for before anything is unpacked. A name on PATH may be a shim that does not start.
python=${PYTHON:-}
if [ -e wheels.tar.000 ]; then
  version=$(fact python)
  for name in "python$version" python3; do
    [ -z "$python" ] || break
    python=$("$name" -c 'import sys; print(sys.executable if "%d.%d" % sys.version_info[:2] == sys.argv[1] else "")' \
      "$version" 2>/dev/null) || python=
  done
  [ -n "$python" ] || fail "there is no python$version" "install it, or name it: PYTHON=/path/to/python3 $0"
  "$python" -I node_site.py require bundle.json "$prefix" ||
    fail "this Python cannot carry the bundle" "name another: PYTHON=/path/to/python3 $0; or bundle for this node's packages"
fi

mkdir -p "$prefix"
rm -rf "$prefix/own" "$prefix/wheels" "$prefix/installer" # of another bundle
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
  echo "making $prefix/venv with $python"
  "$python" -m venv --without-pip --clear "$prefix/venv" || fail "the venv cannot be made" "read Python's words above"
  # The installer comes along: a node's Python need not have pip, and this one unpacks on all cores.
  "$python" -m zipfile -e "$prefix"/installer/uv-*.whl "$prefix/installer/unpacked"
  chmod +x "$prefix"/installer/unpacked/uv-*.data/scripts/uv
  set --
  for lock in "$prefix"/wheels/locks/*.lock; do set -- "$@" --requirements "$lock"; done
  install() {
    UV_CACHE_DIR="$prefix/installer/cache" "$prefix"/installer/unpacked/uv-*.data/scripts/uv pip install --quiet --offline \
      --no-config --no-index --no-deps --find-links "$prefix/wheels" --python "$prefix/venv/bin/python" "$@"
  }
  # Compiled here, on all cores: else the first engines to start compile the same files side by side, for a minute.
  install --compile-bytecode --require-hashes "$@" || fail "the wheels cannot be installed" "read the words above"
  install "$prefix"/own/outrider-*.whl || fail "outrider cannot be installed" "read the words above"
  rm -rf "$prefix/installer"
  "$python" -I node_site.py link bundle.json "$prefix" || fail "the environment cannot be linked" "read the words above"
  "$prefix/venv/bin/outrider" --version >/dev/null || fail "outrider does not start" "read its words above"
  "$prefix/venv/bin/python" -P -m outrider.images.bake --patches "$prefix/patches" --sbom "$prefix/sbom.json" ||
    fail "the engine cannot be patched" "read the words above"
  interpreter=
  if [ "$(fact engine)" = cuda ]; then
    "$prefix/bin/engine-python" -P node_site.py see || fail "the engine cannot be imported" "is its library on this node?"
    interpreter="OUTRIDER_ENGINE_PYTHON=$prefix/bin/engine-python"
  fi
  echo "installed; serve with:"
  echo "  OUTRIDER_CACHE=$prefix OUTRIDER_MODELS=$prefix/models OUTRIDER_PROJECT=$prefix $interpreter \\"
  echo "    $prefix/venv/bin/outrider serve $prefix/stacks/$stack.yaml baseline"
fi
