#!/usr/bin/env bash
# Compiles every header of src/ alone (the target check_headers).
# usage: check_headers.sh [HEADER...]      (paths from src/, for example base/log.h; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
targets=()
for header in "$@"; do
  targets+=("CMakeFiles/check_headers.dir/check_headers/$header.cpp.o")
done
if ((${#targets[@]} == 0)); then
  targets=(check_headers)
fi
scripts/build.sh test "${targets[@]}"
echo "check_headers: ${targets[*]##*check_headers/}"
