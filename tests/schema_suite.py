#!/usr/bin/env python3
"""Answers by JSON schemas against another validator: the package jsonschema of PyPI.

    schema_suite.py PROGRAM SUITE [--answers 50] [--show]

PROGRAM is build/tests/schema_answers. SUITE is the folder tests/draft2020-12 of the JSON Schema Test Suite
(https://github.com/json-schema-org/JSON-Schema-Test-Suite; the source archives of jsonschema have it too). For each of
its schemas that compiles, random answers of the grammar have to be valid, and each of the suite's values that the
grammar accepts has to be valid by the suite. --show lists the schemas that are refused, with the reason.

    schema_suite.py PROGRAM --random 500 [--seed 1] [--show]

does the same with random schemas.

    schema_suite.py http://127.0.0.1:8080 --random 500 --answers 1

has the answers drawn by a model: a server gets each schema as response_format, at temperature 1 and without max_tokens. An
answer that the server cuts, because the context ends, counts as one without an end. tigond with a model, or
build/tigond_fake, whose tokens are random.

The output is TAP, with one test: that no answer and no value is wrong.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import subprocess
import sys
import urllib.error
import urllib.request

try:
    import jsonschema
except ImportError:
    print("1..0 # SKIP no Python package jsonschema")
    sys.exit(0)

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


class Server:
    def __init__(self, url):
        self.url = url.rstrip("/") + "/v1/chat/completions"

    def ask(self, schema, answers, seed):
        body = {"messages": [{"role": "user", "content": "Write JSON."}], "temperature": 1, "n": answers, "seed": seed,
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            choices = json.load(urllib.request.urlopen(request))["choices"]
        except urllib.error.HTTPError as e:
            error = json.load(e)["error"]
            if e.code != 400:
                sys.exit(f"status {e.code} at {json.dumps(schema)}: {error['message']}")
            return {"ms": 0, "code": error["code"], "error": error["message"]}
        whole = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
        return {"ms": 0, "answers": whole, "lost": len(choices) - len(whole), "accepts": []}


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
        self.last = []  # answers of the last schema

    def check(self, ask, name, schema, tests, show):
        """ask: returns what became of the schema and of a list of texts. tests: pairs of a value and whether it is valid."""
        texts = [(text, valid) for value, valid in tests for text in texts_of(value)]
        got = ask([text for text, _ in texts])
        self.numbers["schemas"] += 1
        self.slowest = max(self.slowest, got["ms"])
        self.last = []
        if "code" in got:
            nothing = "no value can be valid" in got["error"]
            if nothing and any(valid for _, valid in tests):
                self.numbers["nothing can be valid, wrongly"] += 1
                if show:
                    print(f"# but {next(value for value, valid in tests if valid)!r} is valid by {json.dumps(schema)}")
            self.numbers["nothing can be valid" if nothing else "refused"] += 1
            self.reasons[got["error"]] += 1
            if show:
                print(f"# refused: {name}: {got['error']}")
            return
        self.numbers["compiled"] += 1
        self.numbers["no end found"] += got["lost"]
        self.last = [json.loads(text) for text in got["answers"]]
        validator = VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER)
        for text in got["answers"]:
            self.numbers["answers"] += 1
            try:
                errors = [e.message for e in validator.iter_errors(json.loads(text))]
            except Exception as e:
                errors = [repr(e)]
            if errors:
                self.wrong += 1
                print(f"# WRONG answer: {name}: {text}: {errors[0]}\n#   {json.dumps(schema)}")
        for (text, valid), accepted in zip(texts, got["accepts"]):
            self.numbers["values accepted"] += accepted and valid
            self.numbers["valid values"] += valid
            if accepted and not valid:
                self.wrong += 1
                print(f"# WRONG value: {name}: {text}\n#   {json.dumps(schema)}")

    def report(self):
        for name, n in self.numbers.items():
            print(f"# {name}: {n}")
        print(f"# longest compilation: {self.slowest:.1f} ms")
        for reason, n in self.reasons.most_common():
            print(f"# {n:4} {reason}")
        good = not self.wrong and self.numbers["answers"] > self.numbers["compiled"] / 2 > 0
        print(f"{'ok' if good else 'not ok'} 1 - of {self.numbers['answers']} answers and {self.numbers['values accepted']} accepted"
              f" values {self.wrong} are wrong\n1..1")
        return 0 if good else 1


def suite(program, count, args):
    for path in sorted(pathlib.Path(args.suite).glob("*.json")):
        for case in json.loads(path.read_text()):
            count.check(lambda texts, schema=case["schema"]: program.ask(schema, args.answers, texts),
                        f"{path.stem}: {case['description']}", case["schema"],
                        [(t["data"], t["valid"]) for t in case["tests"]], args.show)


class Draw:
    """Random schemas with all keywords: types with their keywords, or branches, references, constants and complements."""

    NAMES = ("a", "b", "ab", "c", "x y", "\u00e9")
    PATTERNS = ("^a", "b$", "^[a-c]{1,3}$", r"\d", "^.b?", "x|y", "^(a|bc)*$", "[^a-z]", r"^\w+$", r"^\S*$")

    def __init__(self, seed):
        self.r = random.Random(seed)

    def some(self, values, most):
        return self.r.sample(values, self.r.randint(1, min(most, len(values))))

    def number(self):
        return self.r.choice((-3, -1, 0, 1, 2, 5, 10, 0.5, 2.25, -1.5, 3.0))

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 2 else 6)
        if kind < 2:
            return self.r.choice(("", "a", "ab", "abc", "x y", "\u00e9", "a\n", "12"))
        if kind < 4:
            return self.number()
        if kind < 6:
            return self.r.choice((None, True, False))
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.r.randint(0, 3))]
        return {name: self.value(depth + 1) for name in self.some(self.NAMES, 3)}

    def string(self, depth):
        r, s = self.r, {}
        if r.random() < 0.4:
            s["minLength"] = r.randint(0, 3)
        if r.random() < 0.4:
            s["maxLength"] = r.randint(1, 6)
        if r.random() < 0.5:
            s["pattern"] = r.choice(self.PATTERNS)
        elif r.random() < 0.2:
            s = {"format": r.choice(("date", "time", "date-time", "email", "ipv4", "uuid", "uri", "hostname"))}
        return s

    def numbers(self, depth):
        r, s = self.r, {}
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if r.random() < 0.3:
                s[name] = self.number()
        if r.random() < 0.2:
            s["multipleOf"] = r.choice((1, 2, 3, 7, 2.0))
        return s

    def array(self, depth):
        r, s = self.r, {}
        if r.random() < 0.6:
            s["items"] = self.schema(depth + 1)
        if r.random() < 0.4:
            s["prefixItems"] = [self.schema(depth + 1) for _ in range(r.randint(1, 3))]
        if r.random() < 0.3:
            s["minItems"] = r.randint(0, 3)
        if r.random() < 0.3:
            s["maxItems"] = r.randint(0, 5)
        if r.random() < 0.2:
            s["contains"] = self.schema(depth + 1)
            if r.random() < 0.5:
                s["minContains"] = r.randint(0, 2)
            if r.random() < 0.5:
                s["maxContains"] = r.randint(0, 3)
        if r.random() < 0.1:
            s["unevaluatedItems"] = self.schema(depth + 2)
        if r.random() < 0.1:
            s["uniqueItems"] = True
            s["items"] = {"enum": [self.value() for _ in range(4)]}
        return s

    def object(self, depth):
        r, s = self.r, {}
        names = self.some(self.NAMES, 4)
        if r.random() < 0.8:
            s["properties"] = {name: self.schema(depth + 1) for name in names}
        if r.random() < 0.4:
            s["required"] = self.some(self.NAMES, 2)
        if r.random() < 0.3:
            s["additionalProperties"] = r.choice((False, True, self.schema(depth + 1)))
        if r.random() < 0.2:
            s["patternProperties"] = {r.choice(self.PATTERNS): self.schema(depth + 1) for _ in range(r.randint(1, 2))}
        if r.random() < 0.1:
            s["propertyNames"] = r.choice(({"maxLength": 2}, {"pattern": "^[a-z]"}, {"enum": ["a", "c", "q"]}, {"not": {"const": "a"}},
                                           self.schema(depth + 1), self.schema(depth + 1)))
        if r.random() < 0.1:
            s["minProperties"] = r.randint(0, 2)
        if r.random() < 0.1:
            s["maxProperties"] = r.randint(0, 4)
        if r.random() < 0.1:
            s["unevaluatedProperties"] = r.choice((False, self.schema(depth + 2)))
        if r.random() < 0.1:
            s["dependentRequired"] = {r.choice(self.NAMES): self.some(self.NAMES, 2)}
        if r.random() < 0.1:
            s["dependentSchemas"] = {r.choice(self.NAMES): self.schema(depth + 1)}
        return s

    def typed(self, depth):
        makers = {"string": self.string, "number": self.numbers, "integer": self.numbers, "array": self.array, "object": self.object,
                  "boolean": lambda depth: {}, "null": lambda depth: {}}
        types = self.some(list(makers), 2 if self.r.random() < 0.2 else 1)
        s = {}
        for name in types:
            s.update(makers[name](depth))
        if self.r.random() < 0.8:
            s["type"] = types if len(types) > 1 else types[0]
        return s

    def schema(self, depth):
        r = self.r
        if depth > 3:
            return r.choice((True, {"type": r.choice(("string", "integer", "null"))}, {"const": self.value(2)}, False))
        s = self.typed(depth) if r.random() < 0.85 else {}
        kind = r.random()
        if kind < 0.08:
            s["anyOf"] = [self.schema(depth + 1) for _ in range(r.randint(1, 3))]
        elif kind < 0.14:
            s["oneOf"] = [self.schema(depth + 1) for _ in range(r.randint(1, 3))]
        elif kind < 0.2:
            s["allOf"] = [self.schema(depth + 1) for _ in range(r.randint(1, 2))]
        elif kind < 0.26:
            s["not"] = self.schema(depth + 1)
        elif kind < 0.32:
            s.update({"if": self.schema(depth + 1), "then": self.schema(depth + 1), "else": self.schema(depth + 1)})
        elif kind < 0.4:
            s["$ref"] = r.choice(("#/$defs/one", "#two", "#"))
        elif kind < 0.46:
            s["enum"] = [self.value() for _ in range(r.randint(1, 6))]
        return s

    def whole(self):
        s = self.schema(0)
        s = s if isinstance(s, dict) else {}
        s["$defs"] = {"one": self.schema(1), "two": {**self.typed(1), "$anchor": "two"}}
        return s


def draw(program, count, args):
    """The answers of earlier schemas are values to try."""
    values = collections.deque(maxlen=150)
    for i in range(args.random):
        schema = Draw(args.seed + i).whole()
        validator = VALIDATOR(schema)
        tests = []
        for value in values:
            try:
                tests.append((value, validator.is_valid(value)))
            except RecursionError:
                tests = []
                break
        count.check(lambda texts, schema=schema, seed=args.seed + i: program.ask(schema, args.answers, texts, seed),
                    f"seed {args.seed + i}", schema, tests, args.show)
        values.extend(count.last[:3])


def draw_beside(server, count, args):
    """Several schemas at the same time, and no values to try."""
    seeds = range(args.seed, args.seed + args.random)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for seed, got in zip(seeds, pool.map(lambda seed: server.ask(Draw(seed).whole(), args.answers, seed), seeds)):
            count.check(lambda texts, got=got: got, f"seed {seed}", Draw(seed).whole(), [], args.show)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("suite", nargs="?")
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    count = Count()
    if "://" in args.program:
        draw_beside(Server(args.program), count, args)
    else:
        program = Program(args.program)
        if args.suite:
            suite(program, count, args)
        draw(program, count, args)
    sys.exit(count.report())


main()
