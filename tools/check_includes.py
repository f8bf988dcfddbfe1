#!/usr/bin/env python3
"""Compares every #include in src/ with the arrows that the CMake files draw.

A folder may include its own headers and those of every folder that its DEPENDS reach; tests may
include what TEST_DEPENDS reach as well; app may include everything. Also refused: a cycle among
folders, a quoted include that is not a path from src/, and a heavy library in the wrong file.

usage: check_includes.py [ROOT]
"""

import re
import sys
from pathlib import Path

# Libraries that cost seconds of compile time for every file they reach: in .cpp files only, and
# Boost only in the folder that hides it.
# nlohmann's forward declarations are light and meant for headers.
HEAVY = {"boost": {"net"}, "openssl": {"net"}, "CLI": {"app"}, "toml++": {"app"}, "nlohmann": None,
         "simdjson": None}
LIGHT = {"nlohmann/json_fwd.hpp"}  # declarations only

KEYWORDS = {"SOURCES", "TESTS", "SLOW_TESTS", "DEPENDS", "PRIVATE", "TEST_DEPENDS", "SLOW"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def keyword_arguments(call):
    """{"DEPENDS": ["base", ...], ...} of the words of one CMake call after its first."""
    result, current = {}, None
    for word in call:
        if word in KEYWORDS:
            current = word
        elif current:
            result.setdefault(current, []).append(word)
    return result


def read_arrows(src):
    """Folder -> folders it may include directly, for its sources and for its tests; and the stems
    of its test files (a header beside a test's x.cpp is a test's header)."""
    sources, tests, stems = {}, {}, {}
    for folder in sorted(path for path in src.iterdir() if path.is_dir()):
        lists = folder / "CMakeLists.txt"
        text = lists.read_text() if lists.exists() else ""
        text = re.sub(r"#.*", "", text)
        sources[folder.name], tests[folder.name], stems[folder.name] = set(), set(), set()
        for kind, words in re.findall(r"lagoon_(library|test)\s*\(([^)]*)\)", text):
            arguments = keyword_arguments(words.split()[1:])
            is_test = kind == "test"
            (tests if is_test else sources)[folder.name].update(arguments.get("DEPENDS", []))
            tests[folder.name].update(arguments.get("TEST_DEPENDS", []))
            for keyword in ("SOURCES",) if is_test else ("TESTS", "SLOW_TESTS"):
                stems[folder.name].update(Path(word).stem for word in arguments.get(keyword, []))
    # A folder's own name and library targets ("lagoon_base") come as words too.
    for arrows in (sources, tests):
        for folder, targets in arrows.items():
            names = {re.sub(r"^lagoon_", "", target) for target in targets}
            arrows[folder] = {name for name in names if name in sources and name != folder}
    return sources, tests, stems


def reach(arrows, starts):
    seen, waiting = set(), list(starts)
    while waiting:
        folder = waiting.pop()
        if folder not in seen:
            seen.add(folder)
            waiting.extend(arrows[folder])
    return seen


def find_cycle(arrows):
    """A list of folders that leads back to its first, or None."""
    done = set()

    def visit(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        for target in sorted(arrows[folder]):
            cycle = visit(target, path + [folder])
            if cycle:
                return cycle
        done.add(folder)
        return None

    for folder in sorted(arrows):
        cycle = visit(folder, [])
        if cycle:
            return cycle
    return None


def heavy_problem(path, folder, header):
    library = re.split(r"[/.]", header)[0]
    if library not in HEAVY or header in LIGHT:
        return None
    if path.suffix != ".cpp" and header != "nlohmann/json_fwd.hpp":
        return f"{library} is included in .cpp files only"
    owners = HEAVY[library]
    if owners and folder not in owners:
        return f"{library} is included in {', '.join(sorted(owners))}/ only"
    return None


def check_file(path, src, sources, tests, test_stems):
    folder = path.relative_to(src).parts[0]
    starts = {folder}
    if path.stem in test_stems[folder]:
        starts |= tests[folder]
    allowed = set(sources) if folder == "app" else reach(sources, starts)
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        where = f"{path.relative_to(src.parent)}:{text.count(chr(10), 0, match.start(1)) + 1}"
        quote, header = match.groups()
        problem = heavy_problem(path, folder, header)
        if problem:
            yield f"{where}: {header}: {problem}"
        elif quote == '"' and "/" in header and header.split("/")[0] in HEAVY:
            pass
        elif quote == '"' and not (src / header).is_file():
            yield f'{where}: "{header}" is not a path from src/ (other headers take <>)'
        elif (src / header).is_file() and header.split("/")[0] not in allowed:
            target = header.split("/")[0]
            yield f"{where}: {folder}/ includes {header}, but no arrow leads to {target}/"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    src = root / "src"
    sources, tests, test_stems = read_arrows(src)
    problems, files = [], 0
    cycle = find_cycle(sources)
    if cycle:
        problems.append("src/: the arrows run in a circle: " + " -> ".join(cycle))
    for path in sorted(src.rglob("*")):
        if path.suffix in {".h", ".cpp", ".inc", ".cu", ".cuh"} and len(path.relative_to(src).parts) > 1:
            files += 1
            problems.extend(check_file(path, src, sources, tests, test_stems))
    for problem in problems:
        print(problem)
    if files == 0:
        problems.append("none")
        print(f"{src}: no source files found")
    print(f"check_includes: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
