#!/usr/bin/env python3
"""Sums up test runs; the last line is "N passed, M failed", the exit code 1 where M > 0.

usage: count_tests.py [--ctest BUILD_DIR]... [--node TAP_FILE]...

--ctest  a build directory after `ctest --output-junit tests.xml`: what ctest ran, and the cases of
         each GoogleTest program from test-results/<program>.json. A program that left none, or that
         ended badly though its cases passed (a sanitizer's report, a crash at exit), is one failure.
--node   what `node --test --test-reporter=tap` wrote. A file without its totals is one failure.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


class Totals:
    def __init__(self):
        self.passed, self.skipped, self.failures = 0, [], []


def add_program(totals, name, ended_well, results):
    try:
        report = json.loads(results.read_text())
    except (OSError, ValueError):
        totals.failures.append(f"{name}: did not run to its end")
        return
    failed_before = len(totals.failures)
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            case_name = f"{name}: {suite['name']}.{case['name']}"
            if case.get("failures"):
                totals.failures.append(case_name)
            elif case.get("result") == "COMPLETED":
                totals.passed += 1
            else:
                totals.skipped.append(case_name)
    if not ended_well and len(totals.failures) == failed_before:
        totals.failures.append(f"{name}: its cases passed, but the program did not end well")


def add_ctest(totals, build):
    try:
        cases = ElementTree.parse(build / "tests.xml").getroot().findall("testcase")
    except (OSError, ElementTree.ParseError):
        cases = []
    if not cases:
        totals.failures.append(f"{build}: ctest ran nothing")
    for case in cases:
        name = case.get("name")
        add_program(totals, name, case.get("status") == "run", build / "test-results" / f"{name}.json")


def add_node(totals, path):
    text = path.read_text() if path.exists() else ""
    found = dict(re.findall(r"^# (pass|fail|cancelled|skipped|todo) (\d+)$", text, re.MULTILINE))
    numbers = {key: int(value) for key, value in found.items()}
    if "pass" not in numbers or sum(numbers.values()) == 0:
        totals.failures.append(f"{path}: no tests ran to their end")
        return
    totals.passed += numbers["pass"]
    failed = numbers.get("fail", 0) + numbers.get("cancelled", 0)
    names = re.findall(r"^\s*not ok \d+ - (.*?)(?: # .*)?$", text, re.MULTILINE)
    totals.failures.extend((["conformance: " + name for name in names] + ["conformance"] * failed)[:failed])
    totals.skipped.extend(["conformance"] * (numbers.get("skipped", 0) + numbers.get("todo", 0)))


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--ctest", type=Path, action="append", default=[])
    parser.add_argument("--node", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    totals = Totals()
    for build in arguments.ctest:
        add_ctest(totals, build)
    for path in arguments.node:
        add_node(totals, path)
    for name in totals.skipped:
        print(f"skipped: {name}")
    for name in totals.failures:
        print(f"failed: {name}")
    print(f"{totals.passed} passed, {len(totals.failures)} failed")
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
