#!/usr/bin/env python3
"""The compile-time budget: what a source file may pull in.

Times differ from machine to machine; the lines a translation unit has after preprocessing do not.
Each is counted (without blank lines and line markers) and compared with a limit. The ten slowest
compilations of the last build are printed for information.

usage: check_budget.py [BUILD_DIR] [--only FILE]...     (default build/test; must be configured)
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Lines after preprocessing, in thousands.
LIMIT = 150
TEST_LIMIT = 180
# The files that may have more, each the only one of its kind.
EXCEPTIONS = {
    "src/net/client.cpp": 170,  # Boost.Beast
    "src/net/server.cpp": 180,
}


def compile_commands(build, root):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if path.is_relative_to(root) and not path.is_relative_to(build):
            yield path.relative_to(root).as_posix(), entry


def preprocessed_lines(entry):
    words = shlex.split(entry["command"])
    names = [Path(word).name for word in words]
    if "ccache" in names:
        words = words[names.index("ccache") + 1:]
    output = words.index("-o")
    words = [word for word in words[:output] + words[output + 2:] if word != "-c"]
    # What the precompiled header of the tests holds counts where a file includes it itself.
    if "-include" in words:
        header = words.index("-include")
        words = words[:header] + words[header + 2:]
    result = subprocess.run(words + ["-E", "-P"], cwd=entry["directory"], capture_output=True)
    if result.returncode != 0:
        sys.exit(result.stderr.decode())
    return sum(1 for line in result.stdout.split(b"\n") if line.strip())


def slowest_compilations(build, count):
    log = build / ".ninja_log"
    if not log.exists():
        return []
    times = {}
    for line in log.read_text().split("\n"):
        fields = line.split("\t")
        if len(fields) == 5 and fields[3].endswith(".o"):
            times[re.sub(r"CMakeFiles/[^/]+\.dir/|\.o$", "", fields[3])] = \
                (int(fields[1]) - int(fields[0])) / 1000
    return sorted(((t, name) for name, t in times.items()), reverse=True)[:count]


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", type=Path, default=root / "build" / "test")
    parser.add_argument("--only", action="append", help="a file's path from the root")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if not (build / "compile_commands.json").exists():
        sys.exit(f"{build} is not configured: run scripts/build.sh test")
    units = [unit for unit in sorted(compile_commands(build, root), key=lambda unit: unit[0])
             if not arguments.only or unit[0] in arguments.only]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = list(pool.map(lambda unit: preprocessed_lines(unit[1]), units))
    problems = 0
    named = sorted(zip(counts, (name for name, _ in units)), reverse=True)
    for lines, name in named:
        limit = EXCEPTIONS.get(name, TEST_LIMIT if name.endswith("_test.cpp") else LIMIT)
        if lines > limit * 1000:
            problems += 1
            print(f"{name}: {lines} lines after preprocessing, the limit is {limit * 1000}: "
                  "include less, or hide the library in one file")
    for name in sorted(set(EXCEPTIONS if not arguments.only else ()) - {name for name, _ in units}):
        problems += 1
        print(f"{name}: has a limit of its own but is not built: remove it from EXCEPTIONS")
    print("most lines: " + ", ".join(f"{name} {lines // 1000}k" for lines, name in named[:5]))
    slow = slowest_compilations(build, 10)
    if slow:
        print("slowest compilations of the last build (s, with ccache's hits):")
        for seconds, name in slow:
            print(f"  {seconds:6.1f}  {name}")
    print(f"check_budget: {len(units)} files, {problems} problems")
    return 1 if problems or not units else 0


if __name__ == "__main__":
    sys.exit(main())
