#!/usr/bin/env python3
"""Prints texts with their upper(), lower(), title() and capitalize(), a line each, in hexadecimal UTF-8, for test_jinja.c.

Every character that this Python knows is a text; characters that may matter to their neighbours also stand beside letters and
beside a capital sigma, whose small letter differs at the end of a word.
"""
import sys
import unicodedata

# Unicode counts these as upper or lower case although they are no letters with case; text.h leaves them out.
LETTERS_WITH_CASE = {"Lu", "Ll", "Lt"}


def cased(c):
    return c.isupper() or c.islower() or c.istitle()


def line(text):
    return " ".join(x.encode().hex() for x in (text, text.upper(), text.lower(), text.title(), text.capitalize()))


lines = []
for cp in range(1, 0x110000):
    c = chr(cp)
    category = unicodedata.category(c)
    if category in {"Cn", "Co", "Cs"}:
        continue
    lines.append(line(c))
    if category == "Lo" or (cased(c) and category not in LETTERS_WITH_CASE):
        continue
    if category[0] in "LMPS" or category == "Cf":
        lines += [line(x) for x in ("a" + c + "b", c + "a", "aΣ" + c, "aΣ" + c + "b", "a" + c + "Σ", c + "Σ")]
sys.stdout.write("\n".join(lines) + "\n")
