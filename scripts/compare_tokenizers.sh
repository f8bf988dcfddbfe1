#!/usr/bin/env bash
# Compares Lagoon's tokenizer with the Rust tokenizers library on public tokenizers (tests/tokenizers).
# Installs what that needs, some 800 MB, into a scratch folder and keeps it there.
# usage: compare_tokenizers.sh LAGOON_TOKENIZE [--scratch FOLDER] [compare.mjs's options]
#        compare_tokenizers.sh LAGOON_TOKENIZE [--scratch FOLDER] --make-cases
#   LAGOON_TOKENIZE  the program of that name, from the preset test
#   --make-cases     instead, writes tests/cases/tokenizer and fuzz/seeds/tokenizer_json anew
set -euo pipefail
program=$(realpath "${1:?usage: compare_tokenizers.sh LAGOON_TOKENIZE [--scratch FOLDER] [OPTIONS]}")
shift
scratch=${TMPDIR:-/tmp}/lagoon-tokenizers-$(id -u)
if [[ ${1:-} == --scratch ]]; then
  scratch=${2:?--scratch wants a folder}
  shift 2
fi
cd "$(dirname "$0")/.."
mkdir -p "$scratch"
cp tests/tokenizers/*.mjs tests/tokenizers/package*.json "$scratch"
if ! cmp --silent tests/tokenizers/package-lock.json "$scratch/installed-lock.json"; then
  npm ci --prefix "$scratch" --no-audit --no-fund --loglevel=error
  cp tests/tokenizers/package-lock.json "$scratch/installed-lock.json"
fi
if [[ ${1:-} == --make-cases ]]; then
  exec node "$scratch/make_cases.mjs" "$PWD"
fi
exec node "$scratch/compare.mjs" "$program" models/laguna-nano-nvfp4/tokenizer.json "$@"
