#!/usr/bin/env python3
"""Prints a line for each of many texts: the text, its upper(), lower(), title() and capitalize(), in hexadecimal UTF-8. For
test_jinja.c.

Each assigned character is a text, but for NUL, surrogates and those for private use. A character that can change the case of
its neighbours is also printed beside letters, and beside a capital sigma, whose small letter differs at the end of a word.
"""
import sys
import unicodedata

# The categories of letters with case. Unicode counts a few signs of other categories as cased, too. text.h leaves those out, so
# they are not printed beside others here.
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
