"""tigon simulate: its workload, traces, and recordings of tigond --record."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading

from harness import Server, done, ok, same

TIGON = os.path.abspath(sys.argv[2])
SMALL = ("--sessions", "12", "--users", "4", "--system-tokens", "300", "--first-tokens", "2000", "--turn-tokens", "200",
         "--output-tokens", "40", "--min-turns", "3", "--max-turns", "5")
folder = tempfile.TemporaryDirectory(prefix="tigon-simulate-")


def simulate(*args):
    return subprocess.run([TIGON, "simulate", *args], capture_output=True, text=True, timeout=120)


def place(name, text=None):
    path = os.path.join(folder.name, name)
    if text is not None:
        with open(path, "w") as f:
            f.write(text)
    return path


def fields(text):
    """First words of lines to all numbers of the line; a second run's lines replace nothing."""
    values = {}
    for line in text.splitlines():
        values.setdefault(line.split("\t")[0], [float(v) for v in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", line)])
    return values


def settled(text):
    return [line for line in text.splitlines() if "(host)" not in line]


# the agentic workload
a, b = simulate(*SMALL), simulate(*SMALL)
v = fields(a.stdout)
same((a.returncode, a.stderr), (0, ""), "runs")
same(set(v), {"requests", "prompt tokens", "computed", "memory", "misses", "steps", "time to first token", "step (device)",
              "planning (host)", "committing (host)"}, "prints its lines")
same(settled(a.stdout), settled(b.stdout), "the same every time but for the host's times")
n, failed = v["requests"][:2]
prompt, cached, rate = v["prompt tokens"][:3]
ok(12 * 3 <= n <= 12 * 5 and failed == 0, "three to five turns a session", a.stdout)
ok(abs(rate - 100 * cached / prompt) < 0.01 and rate > 50, "most of it is found", a.stdout)
same((v["computed"][0], v["computed"][1]), (prompt - cached, n * 40), "the rest is computed, and every answer generated")
ok(settled(simulate(*SMALL, "--seed", "2").stdout) != settled(a.stdout), "another seed, another run")
c = simulate(*SMALL, "--compare", "--cache-memory", "400e6", "--slot-bytes", "4e6", "--max-num-seqs", "8")
share = re.search(r"of the hits of unlimited memory\t([\d.]+) %", c.stdout)
bounded, unlimited = (fields(part) for part in (c.stdout + "unlimited memory:").split("unlimited memory:")[:2])
ok(c.returncode == 0 and share and 0 < float(share.group(1)) < 100.001, "--compare", c.stderr + c.stdout)
ok(share and abs(float(share.group(1)) - 100 * bounded["prompt tokens"][1] / unlimited["prompt tokens"][1]) < 0.01 and
   bounded["memory"][0] <= 0.38 < unlimited["memory"][0], "memory is bounded, and the hits are compared", c.stdout)
c = simulate(*SMALL, "--svg", place("plot.svg"))
with open(place("plot.svg")) as f:
    text = f.read()
ok(c.returncode == 0 and text.startswith("<svg") and text.endswith("</svg>\n"), "--svg", c.stderr)

# a trace
trace = [{"at": 0, "prompt": [{"seed": 1, "tokens": 1000}], "output": 10, "boundaries": [500]},
         {"at": 5, "prompt": [{"seed": 1, "tokens": 1000}, {"seed": 2, "tokens": 60}], "output": 10},
         {"at": 10, "prompt": [{"seed": 1, "tokens": 500}, 5, 6, 7], "output": 1, "priority": 3},
         {"at": 15, "prompt": [{"seed": 1, "tokens": 1000}], "salt": 7}]
c = simulate("--trace", place("trace", "\n".join(json.dumps(t) for t in reversed(trace)) + "\n\n"))
v = fields(c.stdout)
# The second one finds 960 of the first one's, the third one the boundary at 448, the salted one nothing.
same((c.returncode, v["requests"][0], v["prompt tokens"][:2], v["computed"][:2]),
     (0, 4, [1000 + 1060 + 503 + 1000, 960 + 448], [1000 + 1060 + 503 + 1000 - 1408, 37]), "a trace, in any order")
ok("salt 1" in c.stdout, "and its reasons", c.stdout)
for salts, cached in ((("a", "a"), 960), (("a", "b"), 0), (("a", 1), 0), ((0, 0), 960), ((-1, 7), 0)):
    text = "".join(json.dumps({**trace[0], "at": 5 * i, "salt": salt}) + "\n" for i, salt in enumerate(salts))
    c = simulate("--cache-memory", "4G", "--slot-bytes", "4e6", "--trace", place("trace", text))
    same(fields(c.stdout).get("prompt tokens", [0, 0])[:2], [2000, cached], f"salts {salts}: {cached} tokens are found")

same([settled(simulate(*SMALL, "--cache-memory", m).stdout) for m in ("1G", "1024M")],
     [settled(simulate(*SMALL, "--cache-memory", "1073741824").stdout)] * 2, "--cache-memory with a suffix")

# complaints
line = json.dumps(trace[0])
for name, args, want in (
        ("no such option", ("--wrong",), "unknown option --wrong"),
        ("no value", ("--seed",), "--seed needs a value"),
        ("no number", ("--seed", "x"), '"x" is not a number'),
        ("too large", ("--plans-out", "3"), "from 1 to 2"),
        ("an argument", ("trace",), 'unexpected argument "trace"'),
        ("turns", ("--min-turns", "9", "--max-turns", "3"), "--max-turns 3 is less"),
        ("nothing to compare", ("--compare",), "--compare needs --cache-memory, to compare with unlimited memory"),
        ("sessions too long", ("--max-turns", "10000", "--turn-tokens", "1e6"), "too long"),
        ("memory for nothing", ("--cache-memory", "1e6"), ""),
        ("no size", ("--cache-memory", "2X"), '"2X" is not'),
        ("a drawing where none can be", ("--svg", folder.name), "--svg " + folder.name),
        ("no trace", ("--trace", place("missing")), "missing"),
        ("a folder as trace", ("--trace", folder.name), "is a directory"),
        ("a folder as record", ("--replay", folder.name), "is a directory"),
        ("a device as trace", ("--trace", "/dev/zero"), "line 1"),
        ("a device as record", ("--replay", "/dev/zero"), "line 1"),
        ("an empty trace", ("--trace", place("empty", "")), "empty"),
        ("no JSON", ("--trace", place("bad1", line + "\n{\n")), "line 2"),
        ("no prompt", ("--trace", place("bad2", '{"at": 1}\n')), "line 1"),
        ("no token", ("--trace", place("bad3", '{"at": 1, "prompt": [-1]}\n')), "line 1"),
        ("text as token", ("--trace", place("bad4", '{"at": 1, "prompt": ["a"]}\n')), "line 1"),
        ("output beyond all", ("--trace", place("bad5", '{"at": 1, "prompt": [1], "output": 4294967297}\n')), "line 1"),
        ("text as output", ("--trace", place("bad6", '{"at": 1, "prompt": [1], "output": "x"}\n')), "line 1"),
        ("boundaries", ("--trace", place("bad7", '{"at": 1, "prompt": [1, 2], "boundaries": [3]}\n')), "line 1"),
        *((f"{key} {value}", ("--trace", place(f"bad-{key}-{i}", line + "\n" + json.dumps({**trace[0], key: value}) + "\n")),
           f'line 2: "{key}"')
          for i, (key, value) in enumerate((("salt", 1.5), ("salt", True), ("salt", None), ("salt", []), ("salt", ""),
                                            ("priority", 4294967295), ("priority", "1"), ("priority", 0.5),
                                            ("priority", None), ("at", -1), ("at", 1e300)))),
        ("no record", ("--replay", place("bad8", line + "\n")), "line 1"),
        ("a record's wrong sizes", ("--replay", place("bad9", '{"tigond_record":1,"config":{"max_seqs":-1}}\n')), "line 1"),
        ("a record of too many pages", ("--replay", place("bad10", json.dumps({"tigond_record": 1, "config": {
            "page_tokens": 64, "n_pages": 4294967295, "max_seqs": 1, "max_prefill_tokens": 64, "max_model_len": 64,
            "max_plans_out": 1, "vocab_size": 100}}) + "\n")), 'line 1: "n_pages"'),
        ("a prompt that came with a draw that failed", ("--replay", place("bad11", "\n".join(map(json.dumps, (
            {"tigond_record": 1, "config": {"page_tokens": 64, "n_pages": 10, "max_seqs": 1, "max_prefill_tokens": 64,
                                            "max_model_len": 640, "max_plans_out": 1, "vocab_size": 100, "max_waiting": 10,
                                            "handoff_min_tokens": 1}},
            {"submit": 1, "prompt": list(range(80)), "end_tokens": [], "boundaries": [], "max_tokens": 3, "n": 1, "priority": 0,
             "space": ["0", "0"], "handoff": 1, "n_have": 0},
            {"plan": None}, {"received": 1, "tokens": [-1]}))) + "\n")), "line 4: a drawn number is no token"),
        ("an empty record", ("--replay", place("empty", "")), "empty"),
        ("a model without config", ("--model", folder.name), "config.json")):
    c = simulate(*args)
    ok(c.returncode == 1 and not c.stdout and c.stderr.startswith("tigon simulate: ") and c.stderr.count("\n") == 1 and
       want in c.stderr, f"complains: {name}", (c.returncode, c.stderr, c.stdout[:300]))

# recordings of a daemon
record = place("record", "somebody's\n")
os.chmod(record, 0o644)
s = Server("--record", record, "--max-num-seqs", "6", "--max-batched-tokens", "256", "--max-model-len", "1024",
           "--max-prefill-ms", "1", env={"FAKE_PAGES": "22", "FAKE_SLOTS": "24", "FAKE_STEP_US": "100", "FAKE_TOKEN_US": "10"})
failures = []


def client(seed):
    r = random.Random(seed)
    for _ in range(12):
        shared = random.Random(r.randrange(3))
        prompt = [shared.randrange(300, 900) for _ in range(r.randrange(1, 400))] + \
                 [r.randrange(300, 900) for _ in range(r.randrange(1, 200))]
        long = r.random() < 0.5
        body = {"prompt": prompt[-60:] if long else prompt, "max_tokens": r.randrange(200, 400) if long else r.randrange(1, 80),
                "ignore_eos": long, "temperature": 1, "seed": r.randrange(1000),
                "n": r.choice((1, 1, 2)), "priority": r.randrange(-1, 2), "cache_prompt": r.random() < 0.9}
        if r.random() < 0.3:
            body["stop"] = ["e"]
        if r.random() < 0.2:
            body["cache_salt"] = "abc"[r.randrange(3)]
        if r.random() < 0.2:
            body["frequency_penalty"] = 1
        if r.random() < 0.2:
            body.update({"echo": True, "logprobs": 1})
        if r.random() < 0.25:  # leaves
            c = s.connect()
            c.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            if r.random() < 0.5:
                c.getresponse().read(50)
            c.close()
            continue
        asked = [("/v1/completions", body)]
        if r.random() < 0.3:
            asked += [("/v1/embeddings", {"input": prompt, "pooling": r.choice(("last", "mean"))}),
                      ("/v1/score", {"text_1": "word " * r.randrange(1, 200), "text_2": ["a", f"{r.random()}"]})]
        for path, one in asked:
            status, answer = s.post(path, one)
            if status != 200:
                failures.append((status, answer))


threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
same(failures, [], "requests at the same time, some of which leave")
ok(s.wait_metric("num_requests_running", 0) is not None, "come to an end")


def aborted():
    return s.metrics()['request_success_total{finished_reason="abort"}']


# Those above may all have left too early or too late to be aborted; this one begins to read, and has 90 ms to be noticed.
before, tries = aborted(), 0
while aborted() == before and tries < 100:
    tries += 1
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({"prompt": [300 + tries], "max_tokens": 900, "ignore_eos": True, "stream": True}),
              {"Content-Type": "application/json"})
    c.getresponse().read(50)
    c.close()
    s.wait_metric("num_requests_running", 0)
ok(aborted() > before, "a client leaves in the middle", tries)
same(s.request("POST", "/cache/flush", b"", {"Content-Type": "application/json"})[0], 200, "a flush")
s.complete(list(range(300, 700)), max_tokens=5)
m = s.metrics()
s.stop()
same(os.stat(record).st_mode & 0o777, 0o600, "the record is its owner's alone")
with open(record) as f:
    lines = f.read().splitlines()
kinds = {kind for line in lines for kind in json.loads(line)}
paces = [json.loads(line).get("pace", 0) for line in lines]
ok(any(0 < pace < 256 for pace in paces), "a pace that is below the budget, of a step's time", paces[:20])
ok(kinds >= {"submit", "plan", "commit", "abort", "flush", "pace"}, "has calls of every kind", kinds)
c = simulate("--replay", record)
ok(m['prefix_cache_misses_total{reason="logprobs"}'] > 5, "some asked about their prompts", m)
ok(m["embeddings_total"] > 5 and m["scored_texts_total"] > 5, "some drew nothing", m)
ok(c.returncode == 0 and c.stdout.endswith("all as recorded\n"), "replayed: the same plans", c.stderr)
plans = sum("plan" in line and json.loads(line).get("plan") is not None for line in lines)
same(fields(c.stdout.replace(" plans", "\tplans")).get(str(plans), [0])[0], plans, "every one of them")
ok(m["num_preemptions_total"] > 0 and m["prefix_cache_evicted_pages_total"] > 0, "retractions and evictions among them", m)

# killed
with open(record) as f:
    text = f.read()
c = simulate("--replay", place("killed", text[:-8]))
ok(c.returncode == 0 and "all as recorded\n" in c.stdout and f"the last line, {len(lines)}, is cut off" in c.stdout,
   "a last line that is cut off is said", c.stderr + c.stdout)
c = simulate("--replay", place("killed", text[:-8] + "\n"))
ok(c.returncode == 1 and f"line {len(lines)}: not JSON" in c.stderr, "with an end it is wrong", c.stderr)

# changed
r = random.Random(1)
known = [i for i, line in enumerate(lines) if json.loads(line).get("plan")]
at = known[len(known) // 2]
changed = lines[:]
changed[at] = '{"plan":"%016x"}' % (int(json.loads(lines[at])["plan"], 16) ^ 1)
c = simulate("--replay", place("changed", "\n".join(changed) + "\n"))
ok(c.returncode == 1 and f"line {at + 1}:" in c.stderr and "another here" in c.stderr, "another hash: names the line", c.stderr)
# A request that was aborted may be in no plan, and then another prompt of it would change no plan. So the request that gets
# another prompt here is one that was not aborted.
left = {json.loads(line).get("abort") for line in lines}
at = next(i for i, line in enumerate(lines)
          if "submit" in line and i > len(lines) // 3 and json.loads(line)["submit"] not in left)
request = json.loads(lines[at])
request["prompt"][0] ^= 1
changed = lines[:at] + [json.dumps(request)] + lines[at + 1:]
c = simulate("--replay", place("changed", "\n".join(changed) + "\n"))
number = int((re.search(r"line (\d+)", c.stderr) or [0, 0])[1])
ok(c.returncode == 1 and number > at, "another prompt: another plan later", c.stderr)
wrong = []
for k in range(60):
    changed = lines[:]
    at = r.randrange(len(lines))
    text = lines[at]
    cut = r.randrange(len(text))
    changed[at] = text[:cut] + r.choice(("", "x", "9", "-", "[", '"', "null")) + text[cut + r.randrange(3):]
    c = simulate("--replay", place("changed", "\n".join(changed) + "\n"))
    if c.returncode not in (0, 1) or (c.returncode and (c.stderr.count("\n") != 1 or "line " not in c.stderr)):
        wrong.append((c.returncode, lines[at][:100], changed[at][:100], c.stderr[-500:]))
ok(not wrong, "whatever is changed: the same plans, or one sentence", "\n".join(map(str, wrong[:5])))
done()
