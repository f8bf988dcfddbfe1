#!/usr/bin/env bash
# clang-tidy-19 with the checks of .clang-tidy over all sources and tests, as many at once as there
# are processors.
# usage: check_tidy.sh [--no-tests] [FILE...]      (paths of .cpp files; without any: all)
# --no-tests: without x_test.cpp, which take as long as the rest
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy-19 >/dev/null || {
  echo "check_tidy: clang-tidy-19 is missing: run scripts/deps.sh lint" >&2
  exit 1
}

# A configuration of its own: compile commands without ccache and GCC's precompiled headers, which clang
# would not understand. (A file that leans on a precompiled header is found here, too.) The CUDA
# backend's files of the host come in where there is nvcc, whose headers they need.
mkdir -p build
cuda=(-DLAGOON_CUDA=OFF)
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
  cuda=(-DLAGOON_CUDA=ON -DLAGOON_CUDA_ARCHITECTURES=90a)
fi
cmake --preset test -B build/tidy -DLAGOON_CCACHE= -DLAGOON_FUZZ=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  "${cuda[@]}" >build/tidy.log 2>&1 || {
  cat build/tidy.log
  exit 1
}
tests=true
if [[ ${1:-} == --no-tests ]]; then
  tests=false
  shift
fi
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(find src tests tools fuzz bench -name node_modules -prune -o -name '*.cpp' -print | sort)
fi
if ! $tests; then
  mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v '_test\.cpp$')
fi
# Exit code 123 of xargs: some call found something.
# What is compiled for another processor only has no command here.
mapfile -t files < <(python3 - "${files[@]}" <<'PYTHON'
import json, os, sys
known = {os.path.realpath(c["file"]) for c in json.load(open("build/tidy/compile_commands.json"))}
for name in sys.argv[1:]:
    if os.path.realpath(name) in known:
        print(name)
    else:
        print(f"check_tidy: {name} is not compiled on this machine", file=sys.stderr)
PYTHON
)
printf '%s\0' "${files[@]}" |
  xargs -0 -n1 -P"$(nproc)" clang-tidy-19 -p build/tidy --quiet --use-color=false 2> >(
    grep -vE '^[0-9]+ warnings? (generated|and [0-9]+ errors? generated)\.$' >&2
  ) && status=0 || status=$?
echo "check_tidy: ${#files[@]} files"
exit "$status"
