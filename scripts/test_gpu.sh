#!/usr/bin/env bash
# Runs the CUDA backend's tests and measurements on a machine with a GPU, from programs that were
# built anywhere (preset cuda: cuda_test kernels_test model_golden_test model_exactness_test
# cuda_bench; model_family_test and lagoon if they are there), and writes what came out as JSON. Ends
# with a short table and "N passed, M failed".
# Correctness first, then compute-sanitizer, then measurement; the limits add up to less than 580 s.
# usage: test_gpu.sh PROGRAMS RESULT.json [COMMIT]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

programs=${1:?usage: test_gpu.sh PROGRAMS RESULT.json [COMMIT]}
result=${2:?usage: test_gpu.sh PROGRAMS RESULT.json [COMMIT]}
commit=${3:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}

passed=0
failed=0
table=()
# attempt NAME SECONDS COMMAND...: leaves its output in NAME.log and how it ended in NAME.end.
attempt() {
  local name=$1 limit=$2 start=$SECONDS status=passed
  shift 2
  timeout "$limit" "$@" >"$work/$name.log" 2>&1 || status=FAILED
  # A test that is skipped has shown nothing.
  grep -qE '^(\[  PASSED  \] [1-9]|[1-9][0-9]* passed, 0 failed)' "$work/$name.log" ||
    [[ $name == bench ]] || status=FAILED
  echo "$((SECONDS - start)) $status" >"$work/$name.end"
}
# count NAME: a stage that has ended; its output is shown where it failed.
count() {
  local seconds status
  read -r seconds status <"$work/$1.end"
  if [[ $status == passed ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 60 "$work/$1.log"
  fi
  table+=("$(printf '%-12s %4d s  %s' "$1" "$seconds" "$status")")
}
# stage NAME SECONDS COMMAND...: passes or fails as a whole.
stage() {
  attempt "$@"
  count "$1"
}

# As fast as the processors are, which the others leave idle.
attempt far 240 "$programs/cuda_test" --gtest_filter='FarGpu.*' &
stage operations 110 "$programs/cuda_test" --gtest_filter='-FarGpu.*'
stage backend 20 "$programs/kernels_test" --gtest_filter='*/cuda'
stage golden 20 "$programs/model_golden_test" --gtest_filter='*/cuda'
if [[ -x $programs/model_family_test ]]; then
  stage family 20 "$programs/model_family_test" --gtest_filter='*BFloat16StaysClose*'
fi
stage exactness 60 "$programs/model_exactness_test" --gtest_filter='*cuda*:*OnAGpu*'
if command -v compute-sanitizer >/dev/null; then
  for tool in "memcheck 20" "racecheck 90"; do
    read -r name limit <<<"$tool"
    stage "$name" "$limit" compute-sanitizer --tool "$name" --error-exitcode 9 --show-backtrace no \
      "$programs/model_exactness_test" --gtest_filter='ExactnessOnAGpu.*'
  done
else
  table+=("compute-sanitizer: not installed, nothing checked")
  failed=$((failed + 1))
fi
if [[ -x $programs/lagoon ]]; then
  stage server 30 scripts/test_gpu_server.sh "$programs/lagoon" "$work/server.json"
fi
wait  # or it would be measured beside others
count far
stage bench 20 "$programs/cuda_bench" "$work/bench.json"

python3 - "$work" "$result" "$commit" "$passed" "$failed" "${table[@]}" <<'PYTHON'
import json, os, sys
work, result, commit, passed, failed, *table = sys.argv[1:]
read = lambda name: json.load(open(f"{work}/{name}")) if os.path.exists(f"{work}/{name}") else {}
figures = read("bench.json")
if server := read("server.json"):
    figures["lagoon_bench"] = server
figures["meta"] = {"commit": commit, "command": "scripts/test_gpu.sh PROGRAMS RESULT.json",
                   "stages": table, "passed": int(passed), "failed": int(failed)}
os.makedirs(os.path.dirname(result) or ".", exist_ok=True)
# What scripts/bench_gpu.sh has measured stays, what this script measured before goes.
if os.path.exists(result):
    before = json.load(open(result))
    for key in ("device", "kernels", "lagoon_bench"):
        before.pop(key, None)
    figures["meta"] = {**before.get("meta", {}), **figures["meta"]}
    figures = {**before, **figures}
with open(result, "w") as file:
    json.dump(figures, file, indent=1)
    file.write("\n")
rows = {row["what"]: row for row in figures.get("kernels", [])}
print(f"copy: {figures.get('copy_gb_s', 0):.0f} GB/s, read plus written")
for what, row in rows.items():
    if ", 1 rows" in what or ", 7 rows" in what:
        print(f"{what:<56} {row['us']:8.2f} us {row['of_copy']:5.2f} of the copy")
PYTHON
printf '%s\n' "${table[@]}"
echo "$passed passed, $failed failed"
((failed == 0))
