#!/usr/bin/env python3
"""Writes fuzz/seeds/parser/ from tests/cases/parse: one seed for each case (fuzz/parser_fuzz.cpp)."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = ROOT / "fuzz/seeds/parser"


def output_bytes(lines):
    data = "\n".join(lines).encode()
    return re.sub(rb"\xe2\x9f\xa8([0-9A-F]{2})\xe2\x9f\xa9",
                  lambda match: bytes([int(match.group(1), 16)]), data)


def is_utf8(data):
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


def cases(path):
    """Yields (in reasoning, has tools, output) of a file."""
    tools = False
    case = None
    for line in path.read_text().split("\n") + ["== "]:
        if line.startswith("== "):
            if case:
                yield case["reasoning"], case["tools"], output_bytes(case["lines"])
            case = {"reasoning": False, "tools": tools, "lines": []}
        elif line.startswith("tools: "):
            tools = line != "tools: none"
        elif line == "begins: reasoning":
            case["reasoning"] = True
        elif line.startswith("|"):
            case["lines"].append(line[2:])


SEEDS.mkdir(parents=True, exist_ok=True)
for old in SEEDS.iterdir():
    old.unlink()
count = 0
for file in sorted((ROOT / "tests/cases/parse").glob("*.case")):
    for number, (reasoning, tools, output) in enumerate(cases(file)):
        if not is_utf8(output):
            continue  # the tree holds text alone; the fuzzer breaks characters by itself
        token_set = number % 4
        head = bytes([reasoning | (2 if tools else 0) | token_set << 3, 2, 1 + number % 5, 3])
        (SEEDS / f"{file.stem}_{number:02}").write_bytes(head + output)
        count += 1
print(f"{count} seeds")
