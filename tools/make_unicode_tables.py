#!/usr/bin/env python3
"""Writes src/text/jinja/unicode_tables.inc: what Python's str methods know of each character.

The tables are those of the Python that runs this (the file's first line names its Unicode
version); Lagoon's templates then upper-case, strip and quote as Jinja2 under that Python does.
"""
import os
import sys
import unicodedata

LAST = 0x110000
OUT = os.path.join(os.path.dirname(__file__), "..", "src", "text", "jinja", "unicode_tables.inc")


def characters():
    return (chr(c) for c in range(LAST) if not 0xD800 <= c < 0xE000)


def ranges(accepts):
    found = []
    for ch in characters():
        if accepts(ch):
            c = ord(ch)
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


def runs(convert):
    """One-to-one mappings as [first, last, stride, delta]; the rest as (code, text)."""
    simple, special = [], []
    for ch in characters():
        to = convert(ch)
        if to == ch:
            continue
        c = ord(ch)
        if len(to) != 1:
            special.append((c, to))
            continue
        delta = ord(to) - c
        if simple and simple[-1][3] == delta:
            first, last, stride, _ = simple[-1]
            step = c - last
            if step <= 2 and (first == last or step == stride):
                simple[-1][1], simple[-1][2] = c, step
                continue
        simple.append([c, c, 1, delta])
    return simple, special


def table(out, kind, name, rows):
    out.append(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(row) + "},"
        if len(line) + len(text) > 100:
            out.append(line)
            line = "   "
        line += text
    out += [line, "};", ""]


def main():
    out = [
        f"// Unicode {unicodedata.unidata_version}, written by tools/make_unicode_tables.py. clang-format off",
        "",
    ]
    properties = {
        "kPrintable": str.isprintable,
        "kAlphabetic": str.isalpha,
        "kDecimal": str.isdecimal,
        "kDigit": lambda c: c.isdigit() and not c.isdecimal(),
        "kNumeric": lambda c: c.isnumeric() and not c.isdigit(),
        "kUppercase": str.isupper,
        "kLowercase": str.islower,
        "kTitlecase": lambda c: c.istitle() and not c.isupper(),
    }
    for name, accepts in properties.items():
        table(out, "Range", name, [[hex(a), hex(b)] for a, b in ranges(accepts)])
    for name, convert in {"Upper": str.upper, "Lower": str.lower, "Title": str.title}.items():
        simple, special = runs(convert)
        table(out, "Run", f"kTo{name}", [[hex(a), hex(b), str(s), str(d)] for a, b, s, d in simple])
        quoted = ['"' + "".join(f"\\x{b:02x}" for b in to.encode()) + '"' for _, to in special]
        table(out, "Special", f"kTo{name}Special", [[hex(c), q] for (c, _), q in zip(special, quoted)])
    with open(OUT, "w", encoding="ascii") as file:
        file.write("\n".join(out))
    print(f"{OUT}: {len(out)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
