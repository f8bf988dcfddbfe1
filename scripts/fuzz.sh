#!/usr/bin/env bash
# Builds the fuzzers with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, and runs them
# from their seeds (fuzz/seeds). Ends with the line "N passed, M failed"; the input that broke one
# is under build/fuzz/found/.
# usage: fuzz.sh [--seconds N] [NAME...]      each runs N seconds (60); all of them without a NAME
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
if [[ ${1:-} == --seconds ]]; then
  seconds=${2:?"--seconds takes a number"}
  shift 2
fi
names=("$@")
if ((${#names[@]} == 0)); then
  for source in fuzz/*_fuzz.cpp; do
    name=${source##*/}
    names+=("${name%_fuzz.cpp}")
  done
fi
for name in "${names[@]}"; do
  [[ -f fuzz/${name}_fuzz.cpp ]] || {
    echo "fuzz.sh: there is no fuzz/${name}_fuzz.cpp" >&2
    exit 2
  }
done

cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${names[@]/%/_fuzz}"

# The files of fuzz/seeds/NAME/ and those that the patterns of fuzz/seeds/NAME.txt name.
gather_seeds() {
  local name=$1 corpus=$2 pattern file
  rm -rf "$corpus"
  mkdir -p "$corpus"
  for file in "fuzz/seeds/$name"/*; do
    if [[ -f $file ]]; then cp "$file" "$corpus/"; fi
  done
  if [[ -f fuzz/seeds/$name.txt ]]; then
    while IFS= read -r pattern; do
      for file in $pattern; do
        [[ -f $file ]] || {
          echo "fuzz.sh: fuzz/seeds/$name.txt names $pattern, which is no file" >&2
          return 1
        }
        cp "$file" "$corpus/${file//\//_}"
      done
    done <"fuzz/seeds/$name.txt"
  fi
  [[ -n $(ls -A "$corpus") ]] || {
    echo "fuzz.sh: $name has no seeds" >&2
    return 1
  }
}

passed=0
failed=0
for name in "${names[@]}"; do
  corpus=build/fuzz/corpus/$name
  gather_seeds "$name" "$corpus"
  mkdir -p "build/fuzz/found/$name"
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -seed=1
    -verbosity=0 -print_funcs=0 -artifact_prefix="build/fuzz/found/$name/")
  if [[ -f fuzz/$name.dict ]]; then options+=(-dict="fuzz/$name.dict"); fi
  echo "--- $name, $seconds s"
  if "build/fuzz/bin/${name}_fuzz" "${options[@]}" "$corpus"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
((failed == 0))
