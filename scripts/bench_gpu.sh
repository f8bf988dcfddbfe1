#!/usr/bin/env bash
# Measures the full-size model (random weights made on the device) on a machine with a GPU with a lagoon
# that was built anywhere, and merges what came out into RESULT.json; keys of other scripts stay. Stages
# (STAGES="decode verify sweep streams contexts load", default: all) have a limit each, together below
# 560 s. What it runs and prints: tools/bench_gpu.py; docs/development.md has the rest.
# usage: bench_gpu.sh PROGRAMS RESULT.json [COMMIT]      PROGRAMS: the folder of lagoon
set -euo pipefail
cd "$(dirname "$0")/.."

programs=${1:?usage: bench_gpu.sh PROGRAMS RESULT.json [COMMIT]}
result=${2:?usage: bench_gpu.sh PROGRAMS RESULT.json [COMMIT]}
commit=${3:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
exec python3 tools/bench_gpu.py "$programs/lagoon" "$result" "$commit"
