"""`tigon tune` on a small model: the table it writes, cuts that it drops (other bits, a process that dies), and the programs that read the table.

    test_tune.py TIGON MODEL
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from harness import done, ok, same  # noqa: E402

TIGON, MODEL = sys.argv[1:3]
# No program cache: asked for a binary, PoCL compiles each kernel once more, for groups of any size. Its own cache is enough.
CACHE = ""
M = (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048)
# Some of the cuts of tests/test_invariance.c, which are compiled once.
CUTS = ("tile_rows=3 tile_blocks=4 blocks=6 row_block=16", "queries=32")
CHAINS = "blocks=2 chains=2"
scratch = tempfile.TemporaryDirectory()


def command(*args, model=MODEL):
    return [TIGON, "tune", "--model", model, "--program-cache", CACHE, "--largest", "64", "--budget", "400",
            *(x for cut in args if not cut.startswith("--") for x in ("--cut", cut)),
            *(cut for cut in args if cut.startswith("--"))]


def tune(*args, model=MODEL):
    return subprocess.run(command(*args, model=model), capture_output=True, text=True, timeout=500)


def table(text):
    lines = text.splitlines()
    rows = [dict(zip("device driver units kernels dtype family N K M cut bits us default".split(), line.split("\t")))
            for line in lines if line and not line.startswith("#")][1:]
    return lines[0], [line for line in lines if line.startswith("#")], rows


def child_of(pid, cut):
    """The process that measures this cut, once it is there."""
    for _ in range(6000):
        for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
            try:
                words = open(f"/proc/{child}/cmdline", "rb").read().decode().split("\0")
            except OSError:
                continue
            if "--measure" in words and words[words.index("--measure") + 1] == cut:
                return int(child)
        time.sleep(0.05)
    raise RuntimeError(f"nobody measures {cut}")


out = os.path.join(scratch.name, "table.tsv")
r = tune(*CUTS, CHAINS, f"--out={out}")
ok(r.returncode == 0 and not r.stdout, "a table is written", r.stderr)
first, notes, rows = table(open(out).read())
same(first, "tigon tuning 1", "of this version")
x86 = rows[0]["kernels"] == "x86"
same({(r["units"].isdigit(), r["device"] != "*", r["dtype"]) for r in rows}, {(True, True, "bfloat16")}, "for this device")
same(sorted({r["family"] for r in rows}), ["attention", "decode_step", "experts", "product"], "every family has rows")
same({r["bits"] for r in rows}, {"same"}, "none of which changes bits")
ok(all(int(r["M"]) in M for r in rows) and len({(r["family"], r["N"], r["K"], r["M"]) for r in rows}) == len(rows),
   "a row for each bucket")
same(sorted(int(r["M"]) for r in rows if r["family"] == "decode_step"), [1, 2, 4, 8, 16, 32, 64], "of decode steps too")
ok(all(float(r["us"]) > 0 for r in rows) and
   all(float(r["us"]) < 0.975 * float(r["default"]) if r["cut"] != "-" else r["us"] == r["default"] for r in rows),
   "what is not the default cut is faster by more than noise", rows)
# Where chains change no bits, as in the generic kernels, that cut stays in the table.
ok({r["cut"] for r in rows} <= {*CUTS, "-", *(() if x86 else (CHAINS,))}, "only cuts that were tried", {r["cut"] for r in rows})
ok(any(", commit " in x and f", model {MODEL}, device " in x for x in notes), "with what they come from", notes)
said = [x for x in notes if x.startswith(("# small: ", "# void: "))]
same(said[0], "# small: much of the model fits into a cache", "a small model is said to be")
ok(all(r.stderr.splitlines().count("tigon tune: " + x[2:]) == 1 for x in said), "on standard error as well", r.stderr)
same([x for x in notes if x.startswith("# dropped: ")], [f"# dropped: {CHAINS}: other bits"] if x86 else [],
     "a cut whose bits differ is dropped")

r = tune(CHAINS, "--batch-invariant=off", "--family")
first, notes, rows = table(r.stdout)
ok(r.returncode == 0 and first == "tigon tuning 1", "to standard output", r.stderr)
same([x for x in notes if x.startswith("# dropped: ")], [], "it stays where bits may change")
same({r["bits"] for r in rows if r["cut"] != "-"} - {"differ" if x86 else "same"}, set(), "and is marked")
same({(r["device"], r["driver"]) for r in rows}, {("*", "*")}, "rows for a family of devices")

p = subprocess.Popen(command(*CUTS), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
os.kill(child_of(p.pid, CUTS[0]), signal.SIGKILL)
text, errors = p.communicate(timeout=500)
first, notes, rows = table(text)
same(p.returncode, 0, "a process that dies is no failure")
ok(f"# dropped: {CUTS[0]}: ended by signal 9" in notes, "its cut is dropped", notes)
same({r["cut"] for r in rows} - {CUTS[1], "-"}, set(), "the others are measured")
ok("# cuts measured: 1, dropped: 1, " in text, "which the table says", notes)

cut_short = os.path.join(scratch.name, "cut-short")
os.mkdir(cut_short)
p = subprocess.Popen(command(CUTS[0], f"--out={cut_short}/table.tsv"), stderr=subprocess.DEVNULL)
child = child_of(p.pid, "-")
p.terminate()
p.wait(timeout=60)
for _ in range(3000):
    try:
        gone = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        gone = True
    if gone:
        break
    time.sleep(0.1)
ok(gone and p.returncode == -signal.SIGTERM, "who is interrupted leaves no process")
same(os.listdir(cut_short), [], "and no file")

r = tune("blocks=4", model="/proc/nowhere")
ok(r.returncode == 1 and "/proc/nowhere" in r.stderr and r.stderr.count("\n") == 1, "no model", r.stderr)
r = tune("blocks=3")
same((r.returncode, r.stderr), (1, 'tigon tune: --cut: blocks is 2 to 32, a multiple of 2, not "3"\n'), "no such cut")
r = tune("foo=3")
ok(r.returncode == 1 and r.stderr.startswith('tigon tune: --cut: "foo=3" is no value of a cut: ') and "tile_rows" in r.stderr,
   "no such value", r.stderr)
r = tune("--largest=63")
same((r.returncode, r.stderr), (1, "tigon tune: --largest: 63 is not between 64 and 2048\n"), "out of range")
r = tune("--budgt=63")
same((r.returncode, r.stderr), (1, "tigon tune: unknown option --budgt; did you mean --budget?\n"), "misspelt")
r = tune("blocks=4", "--out=/proc/nowhere/table")
ok(r.returncode == 1 and "--out: /proc/nowhere/table" in r.stderr, "a table that cannot be written is said before the work", r.stderr)
r = tune("blocks=4", f"--out={scratch.name}")
same((r.returncode, r.stderr), (1, f"tigon tune: --out: {scratch.name}: not a regular file\n"), "and one in a directory's place")


def bench(*args):
    return subprocess.run([TIGON, "bench", "steps", "--model", MODEL, "--program-cache", CACHE, "--prefill", "0", "--decode",
                           "1", "--context", "64", "--repeat", "1", "--steps", "2", *args], capture_output=True, text=True,
                          timeout=500)


r = bench("--tuning", out)
ok(r.returncode == 0 and f"# tuning {out}, batch-invariant on\n" in r.stdout, "the bench takes a table", r.stderr)
used = re.search(rf"^# tuning {re.escape(out)}: (\d+) of (\d+) sizes take a row of it$", r.stdout, re.M)
ok(used and 0 < int(used[1]) <= int(used[2]), "and says how many sizes take a row of it", r.stdout)
forced = os.path.join(scratch.name, "forced.tsv")
with open(forced, "w") as f:
    f.write("tigon tuning 1\n*\t*\t*\tx86\tbfloat16\tdecode_step\t*\t*\t*\tblocks=2 chains=2\tdiffer\t-\t-\n")
r = bench("--tuning", forced, "--batch-invariant", "off")
ok(r.returncode == 0 and f"# tuning {forced}, batch-invariant off{': other bits' if x86 else ''}\n" in r.stdout,
   "also with other bits", r.stdout + r.stderr)
r = bench("--tuning", forced)
ok(r.returncode == 0 and "batch-invariant on\n" in r.stdout, "which it leaves alone otherwise", r.stdout)
other = os.path.join(scratch.name, "other.tsv")
with open(other, "w") as f:
    f.write("tigon tuning 1\nanother device\t*\t*\tx86\tbfloat16\tproduct\t*\t*\t*\tblocks=4\tsame\t-\t-\n")
r = bench("--tuning", other)
ok(f"# tuning {other}: no row is for this device, these kernels and this dtype; nothing changes\n" in r.stdout,
   "a table for others changes nothing, and that is said", r.stdout)
with open(forced, "a") as f:
    f.write("nonsense\n")
r = bench("--tuning", forced)
same((r.returncode, r.stderr), (1, f"tigon bench steps: --tuning: {forced}: line 3 has 1 fields, not 13\n"), "a bad line")
done()
