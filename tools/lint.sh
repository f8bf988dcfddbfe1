#!/usr/bin/env bash
# Runs every check of this folder, the quick ones first.
# usage: lint.sh
set -uo pipefail
cd "$(dirname "$0")" || exit

failed=()
for check in check_tree.py check_includes.py check_format.sh check_shell.sh check_headers.sh \
  check_budget.py check_tidy.sh; do
  "./$check" || failed+=("$check")
done
if ((${#failed[@]} > 0)); then
  echo "lint.sh: failed: ${failed[*]}" >&2
  exit 1
fi
