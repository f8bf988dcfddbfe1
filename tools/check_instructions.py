#!/usr/bin/env python3
"""Counts the instructions of one decode step of the bundled pair with callgrind and compares them with
tests/instructions.json: more than 5 % above is a failure. Unlike time they do not depend on what else
the machine does. One thread, AVX2 (valgrind 3.19 knows no AVX-512).

usage: check_instructions.py PAIR_BENCH [--update]      --update: writes the counts
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).resolve().parent.parent / "tests" / "instructions.json"
STEPS = 4
MOST = 1.05
CASES = {"k 0": ["--k", "0"], "k 6": ["--k", "6"], "k 6, fp8 caches": ["--k", "6", "--fp8"]}


def count(program, arguments):
    """Instructions of one step, on average over STEPS of them."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=*decode_step*",
                   f"--callgrind-out-file={directory}/out", program, "--threads", "1",
                   "--steps", str(STEPS), *arguments]
        run = subprocess.run(command, env={**os.environ, "LAGOON_CPU": "avx2"}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    found = re.search(r"Collected : (\d+)", run.stdout)
    if run.returncode != 0 or not found or int(found[1]) == 0:
        sys.exit(f"check_instructions.py: {' '.join(command)} failed:\n{run.stdout[-2000:]}")
    return int(found[1]) // STEPS


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print("check_instructions.py: counts are those of AVX2 code; nothing to compare here")
        return 0
    counts = {name: count(options.program, arguments) for name, arguments in CASES.items()}
    if options.update:
        RECORD.write_text(json.dumps(counts, indent=2) + "\n")
    if not RECORD.exists():
        sys.exit("check_instructions.py: tests/instructions.json is missing: make it with --update")
    recorded = json.loads(RECORD.read_text())
    failed = False
    for name, now in counts.items():
        ratio = now / recorded[name]
        failed = failed or ratio > MOST
        print(f"{name}: {now:,} instructions a step, {100 * (ratio - 1):+.1f} % of what is recorded")
    if failed:
        print("check_instructions.py: more than 5 % above tests/instructions.json. If that is worth it, "
              "say why in the commit and run with --update.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
