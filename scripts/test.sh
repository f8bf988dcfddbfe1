#!/usr/bin/env bash
# Installs what is missing, builds Lagoon with its tests, runs the unit tests and the tests with real
# client libraries (tests/conformance), and ends with one line "N passed, M failed".
# usage: test.sh [--slow]      --slow: the tests labelled slow, the CUDA backend for every GPU of a
#                              release (needs nvcc), sessions of coding agents, and 30 minutes of
#                              mixed load
set -euo pipefail
cd "$(dirname "$0")/.."

filter=(--label-exclude slow)
slow=false
for argument in "$@"; do
  case $argument in
    --slow)
      filter=()
      slow=true
      ;;
    *)
      echo "usage: test.sh [--slow]" >&2
      exit 2
      ;;
  esac
done

# Ends the run where no test could be run.
broken() {
  echo "test.sh: $*" >&2
  echo "0 passed, 1 failed"
  exit 1
}

status=0
scripts/deps.sh build test || status=$?
# 3: a distribution deps.sh does not know. Then the build says what is missing.
((status == 0 || status == 3)) || broken "installing packages failed (see above)"

# Its own last line goes: the sum over both kinds of tests comes at the end.
status=0
scripts/run_tests.sh test "${filter[@]}" | sed '$d' || status=$?
((status != 2)) || broken "the build failed (see above)"

counts=()
if [[ -f tests/conformance/package.json ]]; then
  counts=(--node build/test/conformance.tap)
  rm -f build/test/conformance.tap
  scripts/conformance.sh build/test/bin/lagoon build/test/conformance.tap ||
    echo "test.sh: the conformance tests failed (see above)" >&2
fi
if ! $slow; then
  exec python3 tools/count_tests.py --ctest build/test "${counts[@]}"
fi
python3 tools/count_tests.py --ctest build/test "${counts[@]}" >build/test/count.txt || true
# Ends with "1 failed" where there is no nvcc.
scripts/run_tests.sh cuda_release --only cuda_test | tee build/test/cuda.txt || true
scripts/test_agents.sh build/test/bin/lagoon | tee build/test/agents.txt || true
scripts/load_test.sh --minutes 30 | tee build/test/load.txt || true
# One sum of all.
cat build/test/count.txt
awk '/^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
  END { print passed " passed, " failed " failed"; exit failed > 0 }' \
  <(tail -n 1 build/test/count.txt) <(tail -n 1 build/test/cuda.txt) \
  <(tail -n 1 build/test/agents.txt) <(tail -n 1 build/test/load.txt)
