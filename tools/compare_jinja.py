#!/usr/bin/python3
"""Holds Lagoon's templates to the real Jinja2 (Debian: python3-jinja2).

Each *.json of tests/cases/jinja and tests/cases/templates is {"context": {...}, "template_file":
"x.jinja", "cases": [...]}; a case has a name, a template (or the file's template_file, which is in
tests/fixtures/templates), a context added to the file's, and what Jinja2 made of it: "output", or
"error" with the exception's type and message. The C++ test src/text/jinja/cases_test.cpp reads the
same files and needs no Python. (Debian's Python finds Debian's Jinja2, hence the first line.)

    tools/compare_jinja.py           verify the stored results against Jinja2
    tools/compare_jinja.py --write   store what Jinja2 gives
"""
import copy
import datetime
import glob
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests")
TEMPLATES = os.path.join(TESTS, "fixtures", "templates")


class Generation(jinja2.ext.Extension):
    """The tag `generation`, which marks what an assistant said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def render_body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def make_environment():
    """As transformers sets it up for chat templates, and the tag `do`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols, jinja2.ext.do]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def outcome(template, context):
    """What the template, compiled or in a function that compiles it, gives."""
    try:
        compiled = template() if callable(template) else template
        # A copy: some filters change lists in place (indent does).
        return {"output": compiled.render(**copy.deepcopy(context))}
    except Exception as error:  # whatever Python raises is what is recorded
        return {"error": {"type": type(error).__name__, "message": str(error)}}


def run_file(environment, path, write):
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    shared = None
    if "template_file" in data:
        # newline="": line ends are the template's own business
        with open(os.path.join(TEMPLATES, data["template_file"]), encoding="utf-8", newline="") as file:
            shared = file.read()
    different = 0
    for case in data["cases"]:
        context = {**data.get("context", {}), **case.get("context", {})}
        source = case.get("template", shared)
        got = outcome(lambda: environment.from_string(source), context)
        stored = {key: case[key] for key in ("output", "error") if key in case}
        if got == stored:
            continue
        different += 1
        if not write:
            print(f"{os.path.basename(path)}: {case['name']}: stored {stored}, Jinja2 gives {got}")
        case.pop("output", None)
        case.pop("error", None)
        case.update(got)
    if write and different:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=False, indent=1)
            file.write("\n")
    return len(data["cases"]), different


def main():
    write = sys.argv[1:] == ["--write"]
    environment = make_environment()
    total = different = 0
    for path in sorted(glob.glob(os.path.join(TESTS, "cases", "jinja", "*.json")) +
                       glob.glob(os.path.join(TESTS, "cases", "templates", "*.json"))):
        cases, changed = run_file(environment, path, write)
        total += cases
        different += changed
    print(f"Jinja2 {jinja2.__version__}: {total} cases, {different} {'written' if write else 'differ'}")
    return 0 if write or different == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
