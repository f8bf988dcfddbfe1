#!/usr/bin/env bash
# Says which lines of the C++ sources clang-format-19 would change. `--fix` changes them.
# usage: check_format.sh [--fix] [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."

fix=false
if [[ ${1:-} == --fix ]]; then
  fix=true
  shift
fi
command -v clang-format-19 >/dev/null || {
  echo "check_format: clang-format-19 is missing: run scripts/deps.sh lint" >&2
  exit 1
}
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(find src tests tools fuzz bench -name node_modules -prune -o \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | sort)
fi
if $fix; then
  clang-format-19 --style=file -i "${files[@]}"
else
  # Of each file the first line is enough.
  found=$(clang-format-19 --style=file --dry-run "${files[@]}" 2>&1 |
    sed -n 's/: warning: code should be clang-formatted.*/: clang-format-19 would change this/p' |
    sort -t: -k1,1 -u)
  if [[ -n $found ]]; then
    echo "$found"
    echo "check_format: tools/check_format.sh --fix does so"
    exit 1
  fi
fi
echo "check_format: ${#files[@]} files"
