#!/usr/bin/env bash
# Runs tests/conformance, the tests that talk to the program with real client libraries.
# usage: conformance.sh PROGRAM [TAP_FILE]      TAP_FILE: where results are also written as TAP
set -euo pipefail
program=$(realpath "${1:?usage: conformance.sh PROGRAM [TAP_FILE]}")
tap=$(realpath --canonicalize-missing "${2:-/dev/null}")
cd "$(dirname "$0")/../tests/conformance"

# Only where the lock file is newer than what is installed.
if [[ ! node_modules/.package-lock.json -nt package-lock.json ]]; then
  npm ci --no-audit --no-fund --loglevel=error
fi
shopt -s nullglob
files=(*.test.js *.test.mjs)
if ((${#files[@]} == 0)); then
  echo "conformance.sh: no test files in tests/conformance" >&2
  exit 1
fi
# A test that waits for ever ends the run.
LAGOON_BINARY=$program exec timeout --kill-after=10 600 node --test \
  --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=tap --test-reporter-destination="$tap" "${files[@]}"
