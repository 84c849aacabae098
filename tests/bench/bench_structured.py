"""What structured output costs: streams whose answers follow a schema, and streams beside a client of costly schemas.

    bench_structured.py TIGON URL [--streams N] [--tokens N] [--rounds N] [--clients N] [--every SECONDS] [--properties N]
                        [--depth N] [--seed N]

Each round has three spells, all of N streams by `TIGON bench serve`:

    free          answers without a constraint
    constrained   answers are JSON of a schema: a list of records with limited strings, numbers, lists and constants
    beside        free answers, while clients have schemas compiled, one after the other, each a new one of hundreds of
                  keywords that takes milliseconds. Their requests are refused then, since the one token that they allow
                  cannot begin an answer: what prompts cost others is in bench_mixed.py. --every has them wait between two
                  schemas; --properties 45 --depth 0 makes schemas of some 100 keywords

Prints a row for each spell, and at the end the medians over the rounds: tokens a second of constrained answers beside
those of free ones (goal: 95 % where a step takes tens of milliseconds, 75 % where it takes two), the 99th percentile of
the time between two tokens beside these clients and without them (goal: 1.3 times), and by how much the largest such time
is longer (goal: 10 ms). Not a test. Answers have the same number of tokens in each spell. The model is not told of the
schema. A model with random weights needs a tokenizer with a text for each id (wide_tokenizer.py): times are those of
events with text.
"""
import argparse
import http.client
import json
import random
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

RECORDS = {"type": "array", "minItems": 4000, "items": {
    "type": "object", "additionalProperties": False, "required": ["name", "kind", "count", "price", "tags", "open"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40}, "kind": {"enum": ["tool", "plant", "animal", "place"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 999}, "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4}, "open": {"type": "boolean"}}}}
FORMATS = ("date-time", "email", "uri", "uuid", "ipv6", "hostname")


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("tigon")
    a.add_argument("url")
    a.add_argument("--streams", type=int, default=8)
    a.add_argument("--tokens", type=int, default=256, help="tokens of each answer; a stream has two")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--clients", type=int, default=1, help="clients that have costly schemas compiled")
    a.add_argument("--every", type=float, default=0, help="seconds from one costly schema of a client to its next; 0: at once")
    a.add_argument("--properties", type=int, default=24, help="of the object that a costly schema describes")
    a.add_argument("--depth", type=int, default=2, help="levels of objects and lists in it")
    a.add_argument("--seed", type=int, default=1, help="of the costly schemas")
    return a.parse_args()


def costly(draw, depth, n):
    """An object of n properties, whose names are drawn anew."""
    def value():
        kind = draw.randrange(7 if depth else 5)
        if kind == 0:
            return {"type": "string", "minLength": draw.randrange(3), "maxLength": draw.randrange(40, 400)}
        if kind == 1:
            return {"type": "string", "pattern": f"^[a-z]{{{draw.randrange(2, 9)},{draw.randrange(10, 60)}}}(-[0-9A-F]{{2,12}})*$"}
        if kind == 2:
            return {"type": "string", "format": draw.choice(FORMATS)}
        if kind == 3:
            return {"type": "number", "minimum": -draw.randrange(1000000), "maximum": draw.randrange(1000000) / 8}
        if kind == 4:
            return {"enum": [f"{draw.getrandbits(64):x}" for _ in range(30)]}
        if kind == 5:
            return {"type": "array", "items": {"anyOf": [costly(draw, depth - 1, 2) for _ in range(3)]}, "maxItems": draw.randrange(5, 20)}
        return costly(draw, depth - 1, 6)
    names = [f"{draw.getrandbits(32):x}" for _ in range(n)]
    return {"type": "object", "properties": {name: value() for name in names}, "required": names[::2], "additionalProperties": False}


class Clients:
    """Clients that have schemas compiled until they are stopped."""

    def __init__(self, args):
        # Schemas are made before, because that takes as long as to compile them.
        draw = random.Random(args.seed)
        schemas = (costly(draw, args.depth, args.properties) for _ in range(400))
        self.bodies = [json.dumps({"prompt": "a", "guided_json": s, "allowed_token_ids": [500]}) for s in schemas]
        self.url, self.every, self.asked, self.over = urllib.parse.urlsplit(args.url), args.every, 0, False
        self.failure = None
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(args.clients)]

    def ask(self):
        c = http.client.HTTPConnection(self.url.hostname, self.url.port or 80, timeout=60)
        while not self.over:
            began = time.monotonic()
            self.asked += 1
            c.request("POST", "/v1/completions", self.bodies[self.asked % len(self.bodies)], {"Content-Type": "application/json"})
            r = c.getresponse()
            body = r.read()
            if b'"constraint_failed"' not in body:
                self.failure = f"status {r.status}: {body.decode()[:300]}"
                return
            time.sleep(max(0, began + self.every - time.monotonic()))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for t in self.threads:
            t.join()
        if self.failure:
            raise SystemExit(f"bench_structured.py: {self.failure}")


def bench(args, *more):
    out = subprocess.run([args.tigon, "bench", "serve", "--url", args.url, "--concurrency", str(args.streams), "--requests",
                          str(2 * args.streams), "--max-tokens", str(args.tokens), "--ignore-eos", "--json", *more], stdout=subprocess.PIPE)
    if out.returncode:
        raise SystemExit("bench_structured.py: bench serve failed")
    row = json.loads(out.stdout)
    if row["tokens"] != 2 * args.streams * args.tokens:
        raise SystemExit(f"bench_structured.py: {row['tokens']} tokens came, {2 * args.streams * args.tokens} were asked for")
    return row


def main():
    args = parse()
    spells = {"free": [], "constrained": [], "beside": []}
    print("spell\ttokens/s\titl_p50_ms\titl_p99_ms\titl_max_ms\tschemas/s")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as schema:
        json.dump(RECORDS, schema)
        schema.flush()
        for i in range(args.rounds):
            for name, rows in spells.items():
                asked = 0
                if name == "beside":
                    with Clients(args) as clients:
                        row = bench(args)
                    asked = clients.asked
                else:
                    row = bench(args, *(["--schema", schema.name] if name == "constrained" else []))
                rows.append(row)
                print(f"{name}\t{row['tokens_per_second']:.0f}\t{row['itl_p50_ms']:.2f}\t{row['itl_p99_ms']:.2f}\t{row['itl_max_ms']:.1f}\t"
                      f"{asked / row['seconds']:.1f}", flush=True)

    def median(name, key):
        return statistics.median(row[key] for row in spells[name])

    free, constrained = (median(name, "tokens_per_second") for name in ("free", "constrained"))
    alone, beside = (median(name, "itl_p99_ms") for name in ("free", "beside"))
    print(f"# constrained: {100 * constrained / free:.1f} % of the tokens/s of free answers\n"
          f"# beside costly schemas: p99 {beside / alone:.2f} times, largest gap "
          f"{median('beside', 'itl_max_ms') - median('free', 'itl_max_ms'):+.1f} ms")


main()
