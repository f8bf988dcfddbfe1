#!/usr/bin/env bash
# Builds the tests of the CPU backend's kernels for aarch64 and runs it under qemu: what this
# machine's processor cannot run itself. Takes the place of neither a run on such a machine nor a
# measurement. The last line is "N passed, M failed".
# usage: test_aarch64.sh
# exit codes: 0 all passed, 1 a test failed or the build did
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/aarch64
compiler=aarch64-linux-gnu-g++
googletest=/usr/src/googletest/googletest
mkdir -p "$build/include"
# Of this machine's headers only fmt's: the others are for another processor.
ln -sfn /usr/include/fmt "$build/include/fmt"
if command -v ccache >/dev/null; then compiler="ccache $compiler"; fi

flags=(-std=c++20 -O2 -Wall -Wextra -ffp-contract=off -DFMT_HEADER_ONLY -Isrc "-I$build/include"
  "-I$googletest/include" "-I$googletest")
sources=(src/base/check.cpp src/base/thread_pool.cpp src/numeric/dtype.cpp src/kernels/ref/matrix.cpp
  src/kernels/ref/workers.cpp src/kernels/cpu/instruction_set.cpp src/kernels/cpu/matrix.cpp
  src/kernels/cpu/pack.cpp src/kernels/cpu/product_portable.cpp src/kernels/cpu/product_neon.cpp
  src/kernels/cpu/product_neonbf16.cpp src/kernels/cpu/matrix_test.cpp
  src/kernels/step.cpp src/kernels/ref/elementwise.cpp src/kernels/cpu/cache.cpp
  src/kernels/cpu/vectors.cpp src/kernels/cpu/vectors_portable.cpp src/kernels/cpu/vectors_neon.cpp
  src/kernels/cpu/vectors_test.cpp src/kernels/cpu/attention_test.cpp
  "$googletest/src/gtest-all.cc" "$googletest/src/gtest_main.cc")
objects=()
jobs=()
for source in "${sources[@]}"; do
  object=${source#/}
  object=$build/${object//\//_}.o
  objects+=("$object")
  extra=()
  # As src/kernels/CMakeLists.txt has it.
  if [[ $source == *neonbf16.cpp ]]; then extra=(-march=armv8.2-a+bf16+fp16); fi
  $compiler "${flags[@]}" "${extra[@]}" -c "$source" -o "$object" &
  jobs+=($!)
  if ((${#jobs[@]} == $(nproc))); then
    wait "${jobs[0]}"
    jobs=("${jobs[@]:1}")
  fi
done
for job in "${jobs[@]}"; do wait "$job"; done
aarch64-linux-gnu-g++ -static "${objects[@]}" -o "$build/matrix_test"

# Both with BF16 dot products and without.
results=$build/matrix_test.json
rm -f "$results"
GTEST_OUTPUT="json:$results" qemu-aarch64 -cpu max "$build/matrix_test" || true
exec python3 - "$results" <<'END'
import json, sys
try:
    report = json.load(open(sys.argv[1]))
except (OSError, ValueError):
    print("0 passed, 1 failed")
    sys.exit(1)
failed = report["failures"] + report.get("errors", 0)
print(f'{report["tests"] - failed} passed, {failed} failed')
sys.exit(failed > 0)
END
