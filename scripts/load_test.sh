#!/usr/bin/env bash
# Mixed load on a server of the bundled pair (tests/load/load.mjs), then Prometheus' own check of the
# metrics it leaves. The last line is "N passed, M failed".
# usage: load_test.sh [--minutes N] [--clients N] [--seed N]      of build/test's program
set -euo pipefail
cd "$(dirname "$0")/.."

program=build/test/bin/lagoon
[[ -x $program ]] || {
  echo "load_test.sh: $program is missing: run scripts/build.sh test lagoon" >&2
  exit 1
}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
node tests/load/load.mjs "$program" --metrics build/load-metrics.txt "$@" | tee "$output" || true
[[ $(tail -n 1 "$output") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || {
  echo "0 passed, 1 failed"
  exit 1
}
passed=${BASH_REMATCH[1]}
failed=${BASH_REMATCH[2]}
if tools/check_metrics.sh build/load-metrics.txt; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
((failed == 0))
