#!/usr/bin/env python3
"""Writes tests/cases/parse/literals.json: texts, and what Python's json and ast.literal_eval make of
them, as JSON text (null where there is nothing that JSON has a form for). Fixed seed."""
import ast
import json
import pathlib
import random
import warnings

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/cases/parse/literals.json"
HAND = r"""
1|-1|0|-0|007|000|0.5|.5|5.|-.5e3|1e5|1E+5|1e-5|1_000|1__0|_1|1_|0x1F|0XfF|0o17|0b101|0b102|0x|+1|- 1|--1|1e|.|..|...
1e999|-1e999|123456789012345678901234567890|1.0e308|2.50|00.5|007.5|1_0.2_5e1_0|1j|1+2|1if|1 2|12abc|0_7|0x_1f
true|True|TRUE|false|False|null|None|none|NoneX|nul|NaN|Infinity|-Infinity|nan|inf
"a"|'a'|"a'b"|'a"b'|"a\"b"|'a\'b'|"\u00e9"|"\ud83d\ude00"|"\ud83d"|'\ud83d'|'\x41\101\0'|'\q'|"\q"|"\/"|'\/'|'\N{DASH}'
"a|'a|a"|""|''|'''a'''|'''a'b'''|'''|''''''|'a' 'b'|'a''b'|"a" 'b'|'a' b|r'\n'|R"\d"|u'x'|U'x'|b'x'|f'x'|rb'x'|ru'x'|'é漢😀'|"é漢😀"
[]|[1]|[1,]|[1, 2]|[,]|[1 2]|[1|]|[[[]]]|[1, "a", null]|[1, 'a', None]|[true, None]|[ ]|()|(1)|(1,)|(1, 2)|((1))|((),)|(,)|( 1 )
{}|{"a": 1}|{'a': 1}|{"a": 1,}|{'a': 1,}|{'a'}|{1: 2}|{1.5: 2}|{True: 1}|{None: 1}|{(1,): 2}|{"a" 1}|{'a': }|{"a": {"b": [1, {}]}}|{'a': {'b': (1, {})}}
1, 2|1,|,1|'a', 'b'|[1], 2|a, b|Paris, France|hello|hello world|-|+|(|)|{|}| 1 | 'a' |set()|[1] + [2]|not True|{**a}|[*a]|-None|-'a'|1 < 2
"""
NEWLINES = ["[1,\n2]", "(1,\n 2)", "{'a':\n1}", "1,\n2", "'a'\n'b'", "('a'\n'b')", "'a\nb'", '"a\nb"',
            "'''a\nb'''", "'a\\\nb'", '"a\tb"', "'a\tb'", "\n1\n", "[\t1\r\n]", "\f1", "[\f1]", "\v1"]


def as_json(text):
    text = text.strip()  # as servers do before they read a value
    try:
        value = json.loads(text, parse_constant=lambda name: 1 / 0)
        kind = "json"
    except (ValueError, ZeroDivisionError):
        try:
            value = ast.literal_eval(text)
            kind = "python"
        except (ValueError, SyntaxError, TypeError, MemoryError):
            return None, None
    try:
        out = json.dumps(value, ensure_ascii=False, allow_nan=False)
        out.encode()
    except (TypeError, ValueError):
        return None, None
    return kind, out


def random_value(rng, depth=0):
    kinds = ["none", "bool", "int", "float", "str"] + (["list", "tuple", "dict"] if depth < 3 else [])
    kind = rng.choice(kinds)
    if kind == "none":
        return None
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "int":
        return rng.choice([0, -1, 7, rng.randrange(-10**6, 10**6), 10**20])
    if kind == "float":
        return rng.choice([0.5, -2.25, 1e22, 1.5e-7, rng.uniform(-100, 100)])
    if kind == "str":
        return "".join(rng.choice("ab '\"\\\n\t/{}[]:,é漢😀\x00\x1b") for _ in range(rng.randrange(6)))
    items = [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    keys = ["a", "b'c", 1, None, True, 2.5, "é"]
    return {rng.choice(keys): item for item in items}


def mutated(rng, text):
    at = rng.randrange(len(text) + 1)
    piece = rng.choice(["", "", ",", "'", '"', "\\", "1", " ", "]", "(", "None", "\n", "e", "."])
    return text[:at] + piece + text[at + rng.randrange(2):]


warnings.simplefilter("ignore")
texts = [text for line in HAND.strip().split("\n") for text in line.split("|")] + NEWLINES
rng = random.Random(20261130)
for _ in range(250):
    value = random_value(rng)
    for text in (repr(value), json.dumps(value, ensure_ascii=rng.random() < 0.5)):
        texts += [text, mutated(rng, text)]
cases = []
for text in dict.fromkeys(texts):
    kind, out = as_json(text)
    cases.append({"text": text, "kind": kind, "json": out})
with OUT.open("w", encoding="utf-8") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
print(f"{len(cases)} cases")
