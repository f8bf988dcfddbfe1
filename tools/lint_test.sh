#!/usr/bin/env bash
# Plants one fault for each thing the checks of this folder promise to find, in a copy of the tree,
# and fails where a check does not find it.
# usage: lint_test.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# What the checks read, without build folders and models.
cd "$root"
git ls-files -z --cached --others --exclude-standard |
  grep -zvE '^(models|tests/golden)/' | while IFS= read -r -d '' file; do
  if [[ -f $file ]]; then printf '%s\0' "$file"; fi
done | xargs -0 cp --parents -t "$copy"
cd "$copy"
git init --quiet
mkdir saved

passed=0
failed=0
# finds WHAT PATTERN CHECK...: the check fails and says what matches PATTERN.
finds() {
  local what=$1 pattern=$2 output
  shift 2
  if output=$("$@" 2>&1); then
    echo "not found: $what: '$*' passes"
    failed=$((failed + 1))
  elif ! grep -qE -- "$pattern" <<<"$output"; then
    echo "not found: $what: '$*' fails, but does not say '$pattern':"
    echo "$output"
    failed=$((failed + 1))
  else
    passed=$((passed + 1))
  fi
}
# plant FILE: writes standard input to a new file, or over an old one.
plant() {
  mkdir -p "$(dirname "$1")"
  cat >"$1"
}

plant src/base/planted.h <<<'#include "engine/engine.h"'
finds "an include against the arrows" 'base/ includes engine/engine.h' tools/check_includes.py
plant src/base/planted.h <<<'#include "check.h"'
finds "an include that is not a path from src/" 'not a path from src/' tools/check_includes.py
plant src/base/planted.h <<<'#include <nlohmann/json.hpp>'
finds "a heavy library in a header" 'in .cpp files only' tools/check_includes.py
rm src/base/planted.h
plant src/text/planted.cpp <<<'#include <boost/asio.hpp>'
finds "Boost outside net/" 'in net/ only' tools/check_includes.py
rm src/text/planted.cpp
cp --parents -t saved src/base/CMakeLists.txt src/text/CMakeLists.txt
echo 'lagoon_library(planted DEPENDS text)' >>src/base/CMakeLists.txt
echo 'lagoon_library(planted DEPENDS base)' >>src/text/CMakeLists.txt
finds "arrows in a circle" 'in a circle: base -> text -> base' tools/check_includes.py
cp -r saved/src .

seq 801 | sed 's|^|// |' | plant src/base/planted.h
finds "a file of 801 lines" 'the limit is 800' tools/check_tree.py
plant src/base/planted.h <<<"// see $(printf '/%s/' work)notes"
finds "a machine's path" 'planted.h:1: names' tools/check_tree.py
plant src/base/planted.h <<<"// see https://$(printf '%s.' registry npmjs)org"
finds "a registry's host" 'planted.h:1: names' tools/check_tree.py
plant src/base/planted.h <<<'// blanks  '
finds "blanks at a line's end" 'blanks at the end' tools/check_tree.py
printf '// no newline' | plant src/base/planted.h
finds "a missing newline" 'one newline' tools/check_tree.py

plant src/base/planted.h <<<'int  planted( );'
finds "a format fault" 'planted.h:1' tools/check_format.sh src/base/planted.h
plant src/base/planted.h <<<'inline std::string planted() { return {}; }'
finds "a header that leans on others" 'planted.h:1' tools/check_headers.sh base/planted.h
rm src/base/planted.h

# shellcheck disable=SC2016
plant tools/planted.sh <<<'rm -rf $1/x'
finds "a shell fault" 'SC2086' tools/check_shell.sh tools/planted.sh

{
  echo '#include <utility>'
  echo 'namespace lagoon {'
  echo 'int BadName() { return 0; }'
  echo 'int planted(int* a) { return sizeof(a) / sizeof(a[0]); }'
  echo '}'
} | plant src/base/check.cpp
finds "a name against the house rules" 'readability-identifier-naming' tools/check_tidy.sh src/base/check.cpp
finds "a likely bug" 'bugprone-sizeof-expression' tools/check_tidy.sh src/base/check.cpp

{
  echo '#pragma once'
  seq 160000 | sed 's|.*|extern int planted_&;|'
} | plant src/base/planted.inc
plant src/base/check.cpp <<<'#include "base/planted.inc"'
finds "a file that pulls in too much" 'src/base/check.cpp: 16[0-9]{4} lines' tools/check_budget.py --only src/base/check.cpp

echo "lint_test: $passed faults found, $failed not found"
((failed == 0))
