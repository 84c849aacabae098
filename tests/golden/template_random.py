#!/usr/bin/env python3
"""Random templates through both jinja2 and ours: prints every difference. Run by hand:

    python3 tests/golden/template_random.py BUILD/tests/test_template [COUNT] [SEED]

The templates are drawn from a grammar of everything chat templates use, and then some; about half of
them render, the rest fail in both. Left out of the comparison: templates that print an address, and templates that we
refuse on purpose (unsupported constructs, integers over 64 bits, hitting a bound)."""
import json
import random
import re
import signal
import subprocess
import sys

from template_cases import CONTEXT
from template_env import render

NAMES = ["n", "zero", "f", "t", "no", "nil", "s", "empty", "u", "ws", "lines", "l", "none_list", "words", "mixed", "nested",
         "pairs", "d", "deep", "clash", "users", "messages", "missing", "x", "y", "z", "ns", "a", "b", "loop", "html", "both"]
ATTRIBUTES = ["name", "age", "role", "content", "a", "b", "x", "items", "keys", "get", "first", "last", "index", "index0", "nope",
              "function", "tool_calls", "length", "revindex", "previtem", "nextitem", "upper", "address", "zip", "append"]
STRINGS = ["a", "b", "", " ", "abc", "user", "name", "a,b,c", "  pad ", "Hello World", "<b>", "é", "日本語", "x\\ny", "%s", "{}", "it\\'s",
           "10", "1.5", "-7", "</think>", "key", "A-b_c D", "ß", "aXbX"]
METHODS = [
    ("upper", 0), ("lower", 0), ("title", 0), ("capitalize", 0), ("strip", (0, 1)), ("lstrip", (0, 1)),
    ("rstrip", (0, 1)), ("split", (0, 2)), ("rsplit", (0, 2)), ("splitlines", (0, 1)), ("startswith", 1), ("endswith", 1),
    ("replace", (2, 3)), ("find", 1), ("rfind", 1), ("join", 1), ("removeprefix", 1), ("removesuffix", 1), ("format", (0, 2)),
    ("items", 0), ("keys", 0), ("values", 0), ("get", (1, 2)), ("append", 1), ("update", 1), ("nope", 0),
]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable",
         "callable", "odd", "even", "divisibleby", "eq", "ne", "lt", "le", "gt", "ge", "in", "sameas", "equalto"]
WITH_ARGUMENT = {"divisibleby", "eq", "ne", "lt", "le", "gt", "ge", "in", "sameas", "equalto"}
SPACES = ["", " ", "\n", "  ", "\n\n", "\t", " \n ", "\n    ", "\r\n", "\u00a0", "\u2003\n"]


class Grammar:
    def __init__(self, rng):
        self.rng = rng
        self.loops = 0
        self.macros = []

    def pick(self, *choices):
        return self.rng.choice(choices)()

    def number(self):
        return self.rng.choice([str(self.rng.randint(-5, 12)), str(self.rng.randint(-3, 3)), f"{self.rng.randint(-50, 50) / 8}", "0", "1", "2", "1e3", "0.1", "100"])

    def string(self):
        quote = self.rng.choice("'\"")
        return quote + self.rng.choice(STRINGS) + quote

    def name(self):
        return self.rng.choice(NAMES)

    def atom(self):
        return self.pick(self.name, self.name, self.name, self.number, self.string, lambda: self.rng.choice(["true", "false", "none", "None", "True"]))

    def several(self, depth, low=0, high=3):
        return [self.expr(depth - 1) for _ in range(self.rng.randint(low, high))]

    def list(self, depth):
        return "[" + ", ".join(self.several(depth)) + "]"

    def tuple(self, depth):
        return "(" + "".join(i + ", " for i in self.several(depth)) + ")"

    def dict(self, depth):
        keys = [self.pick(self.string, self.string, self.number, self.name) for _ in range(self.rng.randint(0, 3))]
        return "{" + ", ".join(f"{k}: {self.expr(depth - 1)}" for k in keys) + "}"

    def binary(self, depth):
        op = self.rng.choice(["+", "+", "+", "-", "*", "/", "//", "%", "~", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or", "and", "or"])
        return f"{self.expr(depth - 1)} {op} {self.expr(depth - 1)}"

    def unary(self, depth):
        return self.rng.choice(["not ", "-", "+", "not not "]) + self.expr(depth - 1)

    def conditional(self, depth):
        tail = f" else {self.expr(depth - 1)}" if self.rng.random() < 0.8 else ""
        return f"{self.expr(depth - 1)} if {self.expr(depth - 1)}{tail}"

    def postfix(self, depth):
        base = self.rng.choice([self.name(), f"({self.expr(depth - 1)})"])
        for _ in range(self.rng.randint(1, 2)):
            base += self.pick(lambda: "." + self.rng.choice(ATTRIBUTES), lambda: f"[{self.expr(depth - 1)}]", lambda: f"[{self.rng.randint(-3, 3)}]", lambda: self.slice(depth))
        return base

    def slice(self, depth):
        part = lambda: self.rng.choice(["", "", str(self.rng.randint(-4, 4)), self.atom() if self.rng.random() < 0.2 else "1"])
        return f"[{part()}:{part()}" + (f":{part()}]" if self.rng.random() < 0.5 else "]")

    def arguments(self, depth, count):
        low, high = count if isinstance(count, tuple) else (count, count)
        return "(" + ", ".join(self.expr(depth - 1) if self.rng.random() < 0.3 else self.atom() for _ in range(self.rng.randint(low, high))) + ")"

    def method(self, depth):
        name, count = self.rng.choice(METHODS)
        if name == "join" and self.rng.random() < 0.6:
            joined = self.rng.choice(["words", "s", "d", "l", "words|map('upper')"])
            return f"{self.string()}.join({joined})"
        base = self.pick(self.name, self.string, lambda: self.rng.choice(["s", "u", "lines", "words[0]", "d", "l"]), lambda: f"({self.expr(depth - 1)})")
        return f"{base}.{name}{self.arguments(depth, count)}"

    def filter(self, depth):
        a = lambda: self.expr(depth - 1) if self.rng.random() < 0.3 else self.atom()
        attr = lambda: self.rng.choice(["'name'", "'age'", "'city'", "'role'", "'address.zip'", "0", "'1'", "'nope'"])
        test = lambda: self.rng.choice(["'defined'", "'string'", "'odd'", "'none'", f"'eq', {a()}", f"'in', {a()}", f"'gt', {a()}", f"'equalto', {self.string()}"])
        inner = lambda: self.rng.choice(["'upper'", "'length'", "'first'", "'string'", "'int'", "'trim'", "'tojson'", f"'join', {self.string()}", f"'default', {a()}", f"attribute={attr()}", f"attribute={attr()}, default={a()}"])
        make = [
            lambda: self.rng.choice(["upper", "lower", "title", "capitalize", "trim", "length", "count", "first", "last", "list", "reverse", "reverse|list", "string", "safe", "e", "escape",
                                     "abs", "int", "float", "round", "sum", "min", "max", "sort", "unique", "unique|list", "dictsort", "items", "items|list", "tojson", "default", "join", "nope"]),
            lambda: f"default({a()})", lambda: f"default({a()}, true)", lambda: f"join({a()})", lambda: f"join({a()}, attribute={attr()})",
            lambda: f"replace({self.string()}, {a()})", lambda: f"trim({self.string()})", lambda: f"indent({self.rng.choice(['2', '4', self.string()])})",
            lambda: f"indent(2, {self.rng.choice(['true', 'false'])}, {self.rng.choice(['true', 'false'])})", lambda: "tojson(indent=2)", lambda: "tojson(separators=(',', ':'))",
            lambda: "tojson(ensure_ascii=true)", lambda: f"map({inner()})|list", lambda: f"map({inner()})", lambda: f"select({test()})|list", lambda: "select|list",
            lambda: f"reject({test()})|list", lambda: f"selectattr({attr()}, {test()})|list", lambda: f"selectattr({attr()})|list", lambda: f"rejectattr({attr()}, {test()})|list",
            lambda: f"sort(attribute={attr()})", lambda: "sort(reverse=true)", lambda: f"sum(attribute={attr()})", lambda: f"sum(start={a()})", lambda: f"unique(attribute={attr()})|list",
            lambda: f"min(attribute={attr()})", 
            lambda: f"round({self.rng.randint(0, 3)})", lambda: f"int({a()})", lambda: f"float({a()})",
            lambda: f"dictsort(by='{self.rng.choice(['key', 'value'])}')",
        ]
        base = self.pick(self.name, self.name, lambda: f"({self.expr(depth - 1)})")
        return base + "".join("|" + self.rng.choice(make)() for _ in range(self.rng.choice([1, 1, 1, 2, 3])))

    def test(self, depth):
        name = self.rng.choice(TESTS)
        negate = "not " if self.rng.random() < 0.3 else ""
        argument = ""
        if name in WITH_ARGUMENT:
            argument = f"({self.expr(depth - 1)})" if self.rng.random() < 0.5 else " " + self.atom().replace("-", "")
        return f"{self.pick(self.name, self.name, lambda: '(' + self.expr(depth - 1) + ')')} is {negate}{name}{argument}"

    def call(self, depth):
        if self.macros and self.rng.random() < 0.7:
            name, params = self.rng.choice(self.macros)
            args = [self.atom() for _ in range(self.rng.randint(0, len(params)))]
            if self.rng.random() < 0.3:
                args.append(f"{self.rng.choice(params + ['q', 'x'])}={self.atom()}")
            return f"{name}({', '.join(args)})"
        return self.rng.choice([f"range({self.rng.randint(-2, 6)})", f"range({self.rng.randint(-2, 3)}, {self.rng.randint(-2, 6)}, {self.rng.choice([-2, -1, 1, 2])})", f"dict(a={self.atom()})",
                                f"namespace(x={self.atom()})", "raise_exception('stop ' ~ n)", "range(3)|list", f"dict(d, a={self.atom()})"])

    def percent(self, depth):
        form = self.rng.choice(["%s", "%d", "%s|%s", "%s%%", "%d-%s"])
        return f"'{form}' % {self.pick(self.atom, lambda: self.tuple(depth), lambda: 'd')}"

    def braces(self, depth):
        form = self.rng.choice(["{}", "{}{}", "{{}}", "<{}>", "{} {{", "{"])
        return f"'{form}'.format({', '.join(self.atom() for _ in range(self.rng.randint(1, 2)))}{self.rng.choice(['', ', a=1'])})"

    def expr(self, depth):
        if depth <= 0 or self.rng.random() < 0.12:
            return self.atom()
        make = self.rng.choice([self.binary, self.binary, self.binary, self.unary, self.conditional, self.postfix, self.postfix, self.postfix, self.method, self.method,
                                self.filter, self.filter, self.filter, self.test, self.test, self.call, self.list, self.tuple, self.dict, self.percent, self.braces])
        text = make(depth)
        return f"({text})" if self.rng.random() < 0.35 else text

    # statements

    def tag(self, text):
        left = self.rng.choice(["{%", "{%", "{%-", "{%+"])
        right = self.rng.choice(["%}", "%}", "-%}", "+%}"])
        return f"{left} {text} {right}"

    def data(self, depth):
        return self.rng.choice(SPACES) + self.rng.choice(["", "text", "é", "{ }", "a b", "%}", "x\n"]) + self.rng.choice(SPACES)

    def output(self, depth):
        return self.rng.choice(["{{ ", "{{- "]) + self.expr(3) + self.rng.choice([" }}", " -}}", "}}" if self.rng.random() < 0.1 else " }}"])

    def comment(self, depth):
        return self.rng.choice(["{# c #}", "{#- c -#}", "{#+ {{ x }} +#}", "{##}"])

    def set(self, depth):
        target = self.rng.choice(["x", "y", "z", "a", "n", "s", "l", "x", "y", "ns.x", "ns.y", "a, b", "x, (y, z)", "d", "missing"])
        return self.tag(f"set {target} = {self.expr(3)}")

    def namespace(self, depth):
        return self.tag(f"set ns = namespace(x={self.atom()}, y={self.expr(1)})")

    def set_block(self, depth):
        filters = self.rng.choice(["", "", " | upper", " | trim | length", " | replace('a', 'b')"])
        return self.tag(f"set {self.rng.choice(['x', 'y', 's'])}{filters}") + self.body(depth) + self.tag("endset")

    def conditional_block(self, depth):
        text = self.tag(f"if {self.expr(2)}") + self.body(depth)
        while self.rng.random() < 0.3:
            text += self.tag(f"elif {self.expr(2)}") + self.body(depth)
        if self.rng.random() < 0.5:
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endif")

    def loop(self, depth):
        target, over = self.rng.choice([
            ("x", "l"), ("y", "words"), ("m", "messages"), ("k, v", "d.items()"), ("k, v", "d|items"), ("x", "range(4)"), ("a, b", "nested"), ("x", "u"), ("x", "users"), ("x", self.expr(2)),
            ("x", "l|map('string')"), ("a, b", "pairs"), ("x", "messages[::-1]"), ("x", "missing"), ("a", self.expr(2)),
        ])
        condition = f" if {self.expr(2)}" if self.rng.random() < 0.25 else ""
        self.loops += 1
        body = self.body(depth)
        if self.rng.random() < 0.4:
            body += "{{ loop." + self.rng.choice(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth"]) + " }}"
        if self.rng.random() < 0.3:
            body += self.tag(f"if {self.expr(1)}") + self.tag(self.rng.choice(["break", "continue"])) + self.tag("endif") + self.body(depth - 1)
        self.loops -= 1
        tail = self.tag("else") + self.body(depth) if self.rng.random() < 0.25 else ""
        return self.tag(f"for {target} in {over}{condition}") + body + tail + self.tag("endfor")

    def macro(self, depth):
        name = f"m{len(self.macros)}"
        params = self.rng.sample(["a", "b", "x", "y"], self.rng.randint(0, 3))
        defaults = self.rng.randint(0, len(params))
        signature = [p if i < len(params) - defaults else f"{p}={self.expr(1)}" for i, p in enumerate(params)]
        loops, self.loops = self.loops, 0
        body = self.body(depth) + self.rng.choice(["", "", "{{ a }}"])
        self.loops = loops
        self.macros.append((name, params))
        return self.tag(f"macro {name}({', '.join(signature)})") + body + self.tag("endmacro")

    def filter_block(self, depth):
        return self.tag("filter " + self.rng.choice(["upper", "trim", "replace('a', 'b')", "indent(2)", "title | lower", "length"])) + self.body(depth) + self.tag("endfilter")

    def generation(self, depth):
        loops, self.loops = self.loops, 0
        body = self.body(depth)
        self.loops = loops
        return self.tag("generation") + body + self.tag("endgeneration")

    def body(self, depth):
        if depth <= 0:
            return self.output(0) if self.rng.random() < 0.5 else self.data(0)
        simple = [self.data, self.data, self.output, self.output, self.output, self.set, self.set, self.namespace]
        nested = [self.conditional_block, self.conditional_block, self.loop, self.loop, self.macro, self.set_block, self.filter_block, self.generation, self.comment]
        return "".join(self.rng.choice(simple + nested if self.rng.random() < 0.6 else simple)(depth - 1) for _ in range(self.rng.randint(1, 4)))

    def damage(self, text):
        """Sometimes a character is lost, doubled or swapped: both must agree that it is wrong, or right."""
        at = self.rng.randrange(len(text)) if text else 0
        return self.rng.choice([text[:at] + text[at + 1:], text[:at] + text[at:at + 1] + text[at:], text[:at] + self.rng.choice("{}%-|.()[]'\" ") + text[at + 1:], text[:at]])


ADDRESS = re.compile(r"0x[0-9a-f]{8}|<generator|<built-in|<function|<class|<bound|_iterator object|<jinja2|<Macro|<transformers|\dj\)", re.I)


def differs(template, ours):
    signal.alarm(10)
    try:
        want = render(template, CONTEXT)
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)
    if "not supported" in ours.get("text", ""):
        return None
    if re.search("cannot be sliced|slice indices must|a slice: expected", ours.get("text", "")):
        return None  # jinja2 gives undefined when it folds constants, and an error otherwise
    if ours.get("error") in (7,) or "64 bits" in ours.get("text", "") or "complex" in ours.get("text", ""):
        return None
    if "output" in want:
        if ADDRESS.search(want["output"]) or ours.get("output") == want["output"]:
            return None
    elif want["error"] == "raised":
        if ours.get("error") == 74 and ours["text"] == want["text"][:511]:
            return None
    elif ours.get("error") == 22:
        return None
    return want


def expired(*_):
    raise TimeoutError


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    signal.signal(signal.SIGALRM, expired)
    ours = subprocess.Popen([sys.argv[1], "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    differences = rendered = 0
    for i in range(count):
        grammar = Grammar(random.Random(seed * 1000003 + i))
        # Half are single expressions, so that most of them say something.
        template = "{{ " + grammar.expr(4) + " }}" if i % 2 else grammar.body(3)
        if grammar.rng.random() < 0.05:
            template = grammar.damage(template)
        ours.stdin.write(json.dumps({"template": template, "context": CONTEXT}) + "\n")
        ours.stdin.flush()
        line = ours.stdout.readline()
        if not line:
            print("it died on", repr(template))
            return 1
        answer = json.loads(line)
        rendered += "output" in answer
        want = differs(template, answer)
        if want:
            differences += 1
            print(f"--- {i}\n{template}\n  ours {answer}\n  want {want}", flush=True)
            if differences >= 40:
                break
    ours.stdin.close()
    print(f"{count} templates, {rendered} rendered, {differences} differences")
    return differences != 0


if __name__ == "__main__":
    sys.exit(main())
