#!/usr/bin/env python3
"""Answers by JSON schemas against another validator: the package jsonschema of PyPI.

    schema_suite.py PROGRAM SUITE [--answers 50] [--show]

PROGRAM is build/tests/schema_answers. SUITE is the folder tests/draft2020-12 of the JSON Schema Test Suite
(https://github.com/json-schema-org/JSON-Schema-Test-Suite; the source archives of jsonschema have it too). For each of
its schemas that compiles, random answers of the grammar have to be valid, and each of the suite's values that the
grammar accepts has to be valid by the suite. --show lists the schemas that are refused, with the reason.

    schema_suite.py PROGRAM --random 500 [--seed 1] [--show]

does the same with random schemas. The exit status is 1 if an answer or a value is wrong.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys

import jsonschema

VALIDATOR = jsonschema.Draft202012Validator


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, schema, answers, texts, seed=1):
        line = {"schema": schema, "answers": answers, "texts": texts, "seed": seed}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        got = self.process.stdout.readline()
        if not got:
            sys.exit(f"the program ended at {json.dumps(schema)}")
        return json.loads(got)


def texts_of(value):
    """A value as texts: as it stands, and with the members of its outer object the other way round."""
    texts = [json.dumps(value), json.dumps(value, ensure_ascii=False)]
    if isinstance(value, dict):
        texts.append(json.dumps(dict(reversed(value.items())), ensure_ascii=False))
    return texts


class Count:
    def __init__(self):
        self.numbers = collections.Counter()
        self.reasons = collections.Counter()
        self.wrong = 0
        self.slowest = 0

    def check(self, program, name, schema, answers, tests, show, seed=1):
        """tests: pairs of a value and whether it is valid."""
        texts = [(text, valid) for value, valid in tests for text in texts_of(value)]
        got = program.ask(schema, answers, [text for text, _ in texts], seed)
        self.numbers["schemas"] += 1
        self.slowest = max(self.slowest, got["ms"])
        if "code" in got:
            nothing = "accepts no value" in got["error"] or "has no text that ends" in got["error"]
            self.numbers["nothing can be valid" if nothing else "refused"] += 1
            self.reasons[got["error"]] += 1
            if show:
                print(f"refused: {name}: {got['error']}")
            return
        self.numbers["compiled"] += 1
        self.numbers["no end found"] += got["lost"]
        validator = VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER)
        for text in got["answers"]:
            self.numbers["answers"] += 1
            try:
                errors = [e.message for e in validator.iter_errors(json.loads(text))]
            except Exception as e:
                errors = [repr(e)]
            if errors:
                self.wrong += 1
                print(f"WRONG answer: {name}: {text}: {errors[0]}\n  {json.dumps(schema)}")
        for (text, valid), accepted in zip(texts, got["accepts"]):
            self.numbers["values accepted"] += accepted and valid
            self.numbers["valid values"] += valid
            if accepted and not valid:
                self.wrong += 1
                print(f"WRONG value: {name}: {text}\n  {json.dumps(schema)}")

    def report(self):
        for name, n in self.numbers.items():
            print(f"{name}: {n}")
        print(f"longest compilation: {self.slowest:.1f} ms")
        for reason, n in self.reasons.most_common():
            print(f"{n:4} {reason}")
        print(f"wrong: {self.wrong}")
        return 1 if self.wrong else 0


def suite(program, count, args):
    for path in sorted(pathlib.Path(args.suite).glob("*.json")):
        for case in json.loads(path.read_text()):
            count.check(program, f"{path.stem}: {case['description']}", case["schema"], args.answers,
                        [(t["data"], t["valid"]) for t in case["tests"]], args.show)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("suite", nargs="?")
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    program, count = Program(args.program), Count()
    if args.suite:
        suite(program, count, args)
    sys.exit(count.report())


main()
