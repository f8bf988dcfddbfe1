#!/usr/bin/env bash
# Installs what is missing, builds Lagoon and serves the bundled model with its draft on port 8000.
# usage: serve.sh [OPTION OF 'lagoon serve'...]      for example: serve.sh --port 9000
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

status=0
"$root/scripts/deps.sh" build || status=$?
# 3: a distribution deps.sh does not know. Then the build says what is missing.
((status == 0 || status == 3)) || exit "$status"
"$root/scripts/build.sh" release lagoon

target=$root/models/laguna-nano-nvfp4
draft=$root/models/laguna-nano-dflash-nvfp4
# A path inside JSON: backslashes and quotes are escaped.
draft=${draft//\\/\\\\}
draft=${draft//\"/\\\"}
# Options given later win.
exec "$root/build/release/bin/lagoon" serve "$target" --port 8000 \
  --speculative-config "{\"method\":\"dflash\",\"model\":\"$draft\"}" \
  "$@"
