#!/usr/bin/env bash
# Builds a preset with its unit tests, runs them, and ends with the line "N passed, M failed".
# usage: run_tests.sh PRESET [--only PROGRAM]... [CTEST OPTION...]
#        --only base_test: builds and runs that program; may be repeated
# exit codes: 0 all passed, 1 a test failed, 2 the build failed
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: run_tests.sh PRESET [--only PROGRAM]... [CTEST OPTION...]}
shift
only=()
while [[ ${1:-} == --only ]]; do
  only+=("${2:?"--only takes the name of a test program"}")
  shift 2
done
options=("$@")
if ((${#only[@]} > 0)); then
  options+=(--tests-regex "^($(IFS='|' && echo "${only[*]}"))\$")
fi
build=build/$preset
rm -rf "$build/test-results" "$build/tests.xml"
if ! scripts/build.sh "$preset" "${only[@]}"; then
  echo "run_tests.sh: the build of '$preset' failed (see above)" >&2
  echo "0 passed, 1 failed"
  exit 2
fi

# ThreadSanitizer cannot map its shadow where the kernel randomizes addresses too widely.
run=()
if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
  run=(setarch "$(uname -m)" -R)
fi
UBSAN_OPTIONS=print_stacktrace=1 "${run[@]}" ctest --test-dir "$build" --output-on-failure \
  --no-tests=error --parallel "$(nproc)" --output-junit tests.xml "${options[@]}" || true
exec python3 tools/count_tests.py --ctest "$build"
