"""tigon simulate with workers apart: bytes sent and their times, computed by hand; one column beside the other."""
import json
import os
import subprocess
import sys
import tempfile

from harness import done, ok, same

TIGON = os.path.abspath(sys.argv[2])
COST = ("--step-us", "1000", "--prefill-us", "100", "--row-us", "10", "--kv-us", "0", "--page-bytes", "1e6",
        "--slot-bytes", "3e6", "--cache-memory", "10e9", "--max-batched-tokens", "1024")
SMALL = ("--sessions", "48", "--users", "16", "--system-tokens", "300", "--first-tokens", "2000", "--turn-tokens", "300",
         "--output-tokens", "40", "--min-turns", "3", "--max-turns", "5", "--think", "2")
folder = tempfile.TemporaryDirectory(prefix="tigon-fleet-")


def simulate(prefill, decode, *args):
    return subprocess.run([TIGON, "simulate", "--prefill-workers", str(prefill), "--decode-workers", str(decode), *args],
                          capture_output=True, text=True, timeout=120)


def columns(c):
    """Names to [apart, unified]."""
    return {x[0]: [float(v) for v in x[1:]] for x in (line.split("\t") for line in c.stdout.splitlines()[1:])}


def trace(*requests):
    path = os.path.join(folder.name, f"trace{len(os.listdir(folder.name))}")
    with open(path, "w") as f:
        f.write("".join(json.dumps(r) + "\n" for r in requests))
    return "--trace", path


# One prompt of 1000 tokens: 16 pages and a state.
one = trace({"at": 0, "prompt": [{"seed": 1, "tokens": 1000}], "output": 3})
c = simulate(1, 1, *COST, *one, "--message-us", "500", "--link", "1e9", "--windows", "10")
v = columns(c)
same((c.returncode, c.stderr, c.stdout.split("\n")[0]), (0, "", "workers\t1 prefill, 1 decode\t2 unified"), "runs")
same([v[k] for k in ("requests", "prompts handed over", "generated", "prompt tokens computed by prefill workers",
                     "prompt tokens computed by answering workers")], [[1, 1], [1, 0], [3, 3], [1000, 0], [0, 1000]], "one prompt")
same((v["sent, GB"], v["states in it, GB"], v["sent a prompt, MB"]), ([0.019, 0], [0.003, 0], [19, 0]), "16 pages and a state")
# PREPARE, the step, and behind it the last of ten windows of 19 MB at 1 GB/s.
same(v["time to first token max, ms"], [0.5 + 101 + 1.9 + 0.5, 101], "the first token: all but the last window is hidden")
same(v["from first token drawn to received max, ms"], [2.4, 0], "that is what it waits for")
same(v["between tokens max, ms"], [1.01, 1.01], "the others come from the decode worker")
v = columns(simulate(1, 1, *COST, *one, "--message-us", "500", "--link", "1e8"))
# The first window is there after a tenth of the step; then the link has work for 190 ms.
same(v["time to first token max, ms"], [0.5 + 10.1 + 190 + 0.5, 101], "a slow link decides")
v = columns(simulate(1, 1, *COST, *one, "--message-us", "500", "--link", "1e12", "--fabric", "1e8"))
same(v["time to first token max, ms"], [201.1, 101], "and so does one that all share")

v = columns(simulate(1, 1, *COST, *trace({"at": 0, "prompt": [{"seed": 1, "tokens": 1000}], "output": 3},
                                         {"at": 5, "prompt": [{"seed": 1, "tokens": 1000}], "output": 3},
                                         {"at": 10, "prompt": [{"seed": 1, "tokens": 1000}, {"seed": 2, "tokens": 300}]})))
# Its 15 whole pages are there, without a state that could be resumed: of the second prompt the rest goes, of the third 6 of 21.
same((v["prompts handed over"][0], v["sent, GB"][0]), (3, round(0.019 + 0.001 + 0.003 + 0.006 + 0.003, 3)),
     "what is there is not sent")
v = columns(simulate(1, 1, *COST, *one, "--disaggregation-min-tokens", "1001"))
same((v["prompts handed over"][0], v["time to first token max, ms"]), (0, [101, 101]), "below the bound: here")

a, b = simulate(2, 2, *COST, *SMALL), simulate(2, 2, *COST, *SMALL)
v = columns(a)
same((a.returncode, a.stdout), (0, b.stdout), "the same every time")
ok(simulate(2, 2, *COST, *SMALL, "--seed", "2").stdout != a.stdout, "another seed, another run")
ok(48 * 3 <= v["requests"][0] <= 48 * 5 and v["requests"][0] == v["requests"][1] and v["failed"] == [0, 0] and
   v["generated"] == [40 * v["requests"][0]] * 2, "all requests in both", a.stdout)
same(v["states in it, GB"][0], round(v["prompts handed over"][0] * 3e-3, 3), "a state a prompt")
ok(v["between tokens max, ms"][0] < 5 < 50 < v["between tokens max, ms"][1], "no prompt between the tokens of an answer",
   a.stdout)
# A few requests are in each worker, whose number varies. So sessions must not move when a worker has some more than others.
few = (*COST, *SMALL, "--users", "64", "--sessions", "192")
found = [columns(simulate(n, n, *few))["found by answering workers, %"] for n in (1, 4)]
ok(all(a - b < 4 for a, b in zip(*found)), "sessions stay with their workers", found)
# All prompts begin alike: they do not all go where the first one went.
v = columns(simulate(8, 8, *COST, *SMALL, "--users", "128", "--sessions", "384", "--think", "0.5"))
ok(v["busiest prefill worker, %"][0] < 2 * v["prefill workers busy, %"][0], "every prefill worker has its part", v)
v = columns(simulate(8, 8, *COST, *SMALL, "--cache-memory", "200e6", "--max-num-seqs", "8"))
same(v["requests"], [v["generated"][0] / 40] * 2, "with hardly any memory too")

# The cost of a step by its tokens: the prompt's 1000 of the first step, and 1 of the others.
two = trace({"at": 0, "prompt": [{"seed": 1, "tokens": 2000}], "output": 3})
for name, args, first, between in (
        ("between two points", (*one, "--step-us", "500:2000,1500:4000"), 3, 2.01),
        ("at a point", (*one, "--step-us", "1:500,1000:5000,2000:9000"), 5, 0.51),
        ("below all points, and behind the last two", (*one, "--step-us", "100:1000,200:1000,500:4000"), 9, 1.01),
        ("one point", (*one, "--step-us", "7:1500"), 1.5, 1.51),
        # 1024 tokens, then 976 that look back at these
        ("in windows", (*two, "--step-us", "1:500,976:1000,1024:3000"), 4, 0.51),
        ("with the tokens before a window", (*two, "--step-us", "1000", "--prefill-kv-us", "0.01"), 2 + 976 * 1024e-5, 1.01),
        ("with the tokens before an answer", (*two, "--step-us", "1000", "--kv-us", "5"), 2, 1.01 + 2001 * 5e-3)):
    v = columns(simulate(1, 1, *COST, "--prefill-us", "0", *args))
    same((round(v["time to first token max, ms"][1], 3), v["between tokens max, ms"][1]), (round(first, 3), round(between, 3)),
         "the cost of a step " + name)
for text in ("", "x", "1:", ":5", "1:2,", ",1:2", "1:2,1:3", "2:2,1:3", "1:3,2:2", "1:2:3", "1:2;2:3", "-1:2", "1:-2", "1:nan", "1e10:1",
             "1:1e10", "1e10", "5 ", "1:2,3", ",".join(f"{i}:1" for i in range(1, 34))):
    c = simulate(1, 1, *COST, *one, "--step-us", text)
    ok(c.returncode == 1 and not c.stdout and c.stderr.startswith("tigon simulate: --step-us: ") and c.stderr.count("\n") == 1,
       f"complains: --step-us {text[:20]!r}", c.stderr)
ok(simulate(1, 1, *COST, *one, "--step-us", ",".join(f"{i}:1" for i in range(1, 33))).returncode == 0, "32 points")

for name, args, want in (("no memory", ("--cache-memory", "0"), "needs --cache-memory"),
                         ("a plot", ("--cache-memory", "1e9", "--svg", "x"), "--svg"),
                         ("too many", ("--prefill-workers", "65"), "from 1 to 64"),
                         ("no link", ("--link", "0"), "from 1 to")):
    c = simulate(1, 1, *args)
    ok(c.returncode == 1 and not c.stdout and c.stderr.count("\n") == 1 and want in c.stderr, f"complains: {name}", c.stderr)
done()
