#!/usr/bin/env bash
# Configures a preset of CMakePresets.json and builds it, into build/<preset>.
# usage: build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: build.sh PRESET [TARGET...]}
shift
mkdir -p build
# What configuring says is of interest only where it fails.
if ! cmake --preset "$preset" >"build/$preset.log" 2>&1; then
  cat "build/$preset.log" >&2
  echo "build.sh: configuring '$preset' failed (see above)" >&2
  exit 1
fi
# A warning of CMake's, up to the empty line behind it.
sed -n '/^CMake Warning/,/^$/p' "build/$preset.log" >&2
targets=()
if (($# > 0)); then
  targets=(--target "$@")
fi
exec cmake --build "build/$preset" --parallel "$(nproc)" "${targets[@]}"
