#!/usr/bin/env bash
# Runs shellcheck on all shell scripts.
# usage: check_shell.sh [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."
command -v shellcheck >/dev/null || {
  echo "check_shell: shellcheck is missing: run scripts/deps.sh lint" >&2
  exit 1
}
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(find scripts tools fuzz .ci -type f | sort | xargs grep -lE '^#!.*\b(ba)?sh$')
fi
shellcheck --shell=bash --external-sources "${files[@]}"
echo "check_shell: ${#files[@]} files"
