#!/usr/bin/env bash
# A session of each coding agent that runs without a display (tests/agents): Codex CLI, opencode and
# Cline, which npm installs into build/agents, some 1.3 GB. The last line is "N passed, M failed".
# usage: test_agents.sh [PROGRAM]      PROGRAM: build/test/bin/lagoon unless given
set -euo pipefail
program=$(realpath "${1:-$(dirname "$0")/../build/test/bin/lagoon}")
cd "$(dirname "$0")/.."

[[ -x $program ]] || {
  echo "test_agents.sh: $program is missing: run scripts/build.sh test lagoon" >&2
  exit 1
}
# What docs/agents.md says was tested.
agents=(@openai/codex@0.171.0 opencode-ai@1.18.33 cline@3.0.65)
mkdir -p build/agents
[[ -f build/agents/package.json ]] || echo '{"private": true}' >build/agents/package.json
tap=build/agents/agents.tap
rm -f "$tap"
npm install --prefix build/agents --no-audit --no-fund --loglevel=error "${agents[@]}" || {
  echo "test_agents.sh: npm did not install the agents (see above)" >&2
  echo "0 passed, 1 failed"
  exit 1
}
AGENTS=build/agents LAGOON_BINARY=$program timeout --kill-after=10 900 node --test \
  --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=tap --test-reporter-destination="$tap" tests/agents/agents.test.mjs || true
python3 tools/count_tests.py --node "$tap"
