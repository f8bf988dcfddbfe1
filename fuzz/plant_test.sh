#!/usr/bin/env bash
# Shows that each fuzzer can fail: plants the faults of fuzz/plants/NAME.patch in a copy of the tree
# and demands that NAME finds its own within 60 seconds. Ends with "N passed, M failed".
# usage: plant_test.sh [NAME...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

names=("$@")
if ((${#names[@]} == 0)); then
  for source in fuzz/*_fuzz.cpp; do
    name=${source##*/}
    names+=("${name%_fuzz.cpp}")
  done
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -f $file ]]; then printf '%s\0' "$file"; fi
done | xargs -0 cp --parents -t "$copy"
cd "$copy"
git init --quiet

passed=0
failed=0
for name in "${names[@]}"; do
  git apply "fuzz/plants/$name.patch"
done
for name in "${names[@]}"; do
  start=$SECONDS
  status=0
  scripts/fuzz.sh --seconds 60 "$name" >output.txt 2>&1 || status=$?
  if ((status == 1)) && grep -qE '^SUMMARY: |deadly signal' output.txt; then
    echo "$name: found the planted fault within $((SECONDS - start)) s, its build included"
    passed=$((passed + 1))
  else
    tail -n 30 output.txt
    echo "$name: did not find the planted fault"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
((failed == 0))
