"""A tigond with a tuning table gives the answers of one without, to the last bit of every log-probability; one whose table
is no good does not start.
"""
import os
import subprocess
import sys
import tempfile

from harness import MODEL, TIGOND, Server, done, ok, parallel, same

scratch = tempfile.TemporaryDirectory()
# The cuts of tests/test_invariance.c, so that each is compiled once.
ROWS = {
    "product": [("*", "tile_rows=3 tile_blocks=4 blocks=6 row_block=16"), ("64", "tile_rows=6 tile_blocks=2 blocks=2")],
    "experts": [("*", "tile_rows=12 tile_blocks=2 blocks=4 ahead=128")],
    "attention": [("*", "queries=32"), ("128", "queries=1")],
    "decode_step": [("*", "tile_rows=5 tile_blocks=4 blocks=6 row_block=16"), ("1", "blocks=16")],
}
LINES = ["\t".join(("*", "*", "*", kernels, "bfloat16", family, "*", "*", m, cut, "same", "-", "-"))
         for kernels in ("generic", "x86") for family, rows in ROWS.items() for m, cut in rows]


def write(name, *lines):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as f:
        f.write("\n".join(("tigon tuning 1", *lines, "")))
    return path


def answers(s):
    """Alone, and nine at the same time."""
    prompts = ["The cache holds pages of " * n for n in (1, 5, 40)]

    def one(i):
        status, a = s.complete(prompts[i % 3], max_tokens=20, logprobs=5, seed=i, temperature=0 if i < 6 else 1)
        return status, [(c["text"], c["logprobs"]) for c in a["choices"]]

    return [one(i) for i in range(9)] + parallel([lambda i=i: one(i) for i in range(9)])


def refused(*args):
    r = subprocess.run([TIGOND, "--model", MODEL, *args], capture_output=True, text=True, timeout=60)
    return r.returncode, r.stderr.replace(scratch.name, "...")


plain = Server()
want = answers(plain)
fingerprint = plain.complete("x", max_tokens=1)[1]["system_fingerprint"]
plain.stop()
ok(all(status == 200 for status, _ in want) and want[:9] == want[9:], "without a table", want)
s = Server("--tuning", write("good", *LINES))
same(answers(s), want, "with one: the same bits")
same(s.complete("x", max_tokens=1)[1]["system_fingerprint"], fingerprint, "and the same fingerprint")
s.stop()
chains = write("chains", *LINES, LINES[-1].replace("blocks=16", "blocks=2 chains=2").replace("same", "differ"))
s = Server("--tuning", chains)
same(answers(s), want, "rows that change bits are left alone")
s.stop()
s = Server("--tuning", chains, "--batch-invariant", "off")
got = answers(s)
ok(all(status == 200 for status, _ in got), "unless --batch-invariant is off", got)
if " x86 kernels" in s.text():
    ok(s.complete("x", max_tokens=1)[1]["system_fingerprint"] != fingerprint, "then the fingerprint is another")
s.stop()

same(refused("--tuning", "/proc/nowhere/table"), (1, "tigond: --tuning: /proc/nowhere/table: cannot open: No such file or directory\n"),
     "no table")
same(refused("--tuning", write("bad", *LINES, LINES[0].replace("blocks=6", "blocks=600"))),
     (1, f"tigond: --tuning: .../bad: line {len(LINES) + 2}: blocks is 2 to 32, a multiple of 2, not \"600\"\n"),
     "a bad one")
same(refused("--batch-invariant", "maybe"), (1, 'tigond: --batch-invariant: "maybe" is none of on or off\n'), "on or off")
done()
