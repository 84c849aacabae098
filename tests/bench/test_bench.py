"""`tigon bench kernels`, `steps` and `copies` on lexis: their columns, and that the values in them agree.

    test_bench.py TIGON MODEL PROGRAM_CACHE
"""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from harness import done, ok, same  # noqa: E402

TIGON, MODEL, CACHE = sys.argv[1:4]
os.makedirs(CACHE, exist_ok=True)
KERNELS = ("step streams tokens kernel shape launches us MB MFLOP GB/s GFLOP/s bound share_% experts note").split()
STEPS = ("step streams tokens steps launches experts ms ms_min ms_max tokens/s GB GFLOP bound share_% note").split()
EXPERTS, TOP_K, LAYERS, DELTA_LAYERS, MOST = 32, 4, 8, 6, 4096


def bench(*args, model=MODEL):
    return subprocess.run([TIGON, "bench", args[0], *(["--model", model] if model else []), "--program-cache", CACHE,
                           *args[1:]], capture_output=True, text=True, timeout=600)


def table(out, columns):
    """The lines that begin with #, and the rows as dictionaries."""
    head = [line for line in out.stdout.splitlines() if line.startswith("#")]
    lines = [line.split("\t") for line in out.stdout.splitlines() if not line.startswith("#")]
    ok(out.returncode == 0 and lines and lines[0] == columns and all(len(x) == len(columns) for x in lines),
       f"{out.args[2]}: {len(lines) - 1} rows of {len(columns)} columns", out)
    return head, [dict(zip(columns, line)) for line in lines[1:]]


def peaks(head, which):
    line = next(x for x in head if x.startswith(f"# peak {which}: "))
    numbers = [float(x) * 1e9 for x in re.findall(r"([\d.]+) G", line)]
    return dict(zip(("read", "copy", "flops", "dot", "int8"), numbers))


def close(a, b, tolerance=0.02, least=0.06):
    return abs(a - b) <= max(tolerance * abs(b), least)


def check_head(head, rows, measured, kernels, dtype):
    ok(re.match(r"# tigon \d+\.\d+\.\d+, commit \S+$", head[0]), "a commit", head)
    ok(re.match(rf"# device .+, driver .+, kernels {kernels}, {dtype}$", head[1]), "device and driver", head)
    ok(f"# peaks measured {measured} times: shares are of the best ones" in head, "peaks before, between and after", head)
    best, least = peaks(head, "best"), peaks(head, "least")
    ok(all(best[k] >= least[k] > 0 for k in best), "the best peaks are no less than the least", head)
    void = any(x.startswith("# void: ") for x in head)
    same({r["note"] for r in rows}, {"void" if void else "-"}, "rows of a void run are void")
    return best


def auto(out):
    return re.search(r"kernels (\w+),", out.stdout)[1]


out = bench("kernels", "--prefill", "128", "--decode", "1,3", "--context", "200", "--repeat", "3")
head, rows = table(out, KERNELS)
launched = {r["kernel"] for r in rows if not r["kernel"].startswith("(")}
best = check_head(head, rows, 4, auto(out), "bfloat16")
same([(r["step"], r["streams"], r["tokens"]) for r in rows if r["kernel"] == "(step)"],
     [("prefill", "1", "128"), ("decode", "1", "200"), ("decode", "3", "200")], "each kind of step once")
for kind in (("prefill", "1"), ("decode", "1"), ("decode", "3")):
    own = [r for r in rows if (r["step"], r["streams"]) == kind]
    whole = {r["kernel"]: r for r in own if r["kernel"].startswith("(")}
    own = [r for r in own if not r["kernel"].startswith("(")]
    same(sum(int(r["launches"]) for r in own), int(whole["(all kernels)"]["launches"]), f"{kind}: launches add up")
    ok(0 < float(whole["(all kernels)"]["us"]) <= float(whole["(step)"]["us"]),
       f"{kind}: kernels take no longer than the step", whole)
    ok([float(r["us"]) for r in own] == sorted((float(r["us"]) for r in own), reverse=True), f"{kind}: the slowest first")
    same(sorted(r["kernel"] for r in own if r["MB"] == "-"), ["moe_sort"], f"{kind}: what the roofline does not know")
    bad = []
    for r in own:
        if r["MB"] == "-":
            continue
        us, mb, mflop = float(r["us"]), float(r["MB"]), float(r["MFLOP"])
        dot = re.match("gemm|moe", r["kernel"])
        moving, computing = mb / best["read"] * 1e12, mflop / best["dot" if dot else "flops"] * 1e12
        # Times are printed to 0.1 us and sizes to a kilobyte, so rates of small ones are rough.
        rough = 0.02 + 0.06 / max(us, 0.1) + 0.0006 / max(mb, 0.001)
        if us >= 1 and not (close(float(r["GB/s"]), mb / us * 1e3, rough) and
                            close(float(r["share_%"]), 100 * max(moving, computing) / us, rough, 1) and
                            r["bound"] in ("bytes", "flops")):
            bad.append(r)
    ok(not bad, f"{kind}: rates and shares are those of the columns", bad)
    routed = {r["kernel"]: float(r["experts"]) for r in own if r["experts"] != "-"}
    same(sorted(routed), ["moe_down", "moe_gate_up", "moe_sort"], f"{kind}: experts where there are some")
    if kind == ("decode", "1"):
        same(set(routed.values()), {float(TOP_K)}, "a token touches as many experts as it chooses")
    else:
        ok(TOP_K < routed["moe_down"] <= min(EXPERTS, TOP_K * (128 if kind[0] == "prefill" else 3)),
           f"{kind}: several tokens more of them", routed)
    delta = [r for r in own if r["kernel"] == ("delta_prefill" if kind[0] == "prefill" else "delta_decode")]
    same([int(r["launches"]) for r in delta], [DELTA_LAYERS], f"{kind}: Gated DeltaNet in each layer that has it")

out = bench("kernels", "--synthetic-weights", "1", "--synthetic-types", "Q4_K_M", "--prefill", "64", "--decode", "1", "--repeat", "1")
head, rows = table(out, KERNELS)
best = check_head(head, rows, 3, auto(out), "bfloat16")
bad = []
for r in rows:
    if re.match("gemm|moe_gate|moe_down", r["kernel"]):
        us, mb, mflop = float(r["us"]), float(r["MB"]), float(r["MFLOP"])
        share = 100 * max(mb / best["read"] * 1e12, mflop / best["int8"] * 1e12) / us
        if us >= 1 and not close(float(r["share_%"]), share, 0.02 + 0.06 / us + 0.0006 / max(mb, 0.001), 1):
            bad.append((r, share))
ok(rows and not bad, "shares of products with quantised weights are of the int8 peak", bad)

with tempfile.TemporaryDirectory() as folder:
    plot = os.path.join(folder, "plot.svg")
    out = bench("kernels", "--prefill", "0", "--decode", "2", "--context", "64,640", "--repeat", "1", "--only",
                "attention", "--plot", plot, "--synthetic-weights", "5", "--dtype", "float32", "--kernels", "generic")
    head, rows = table(out, KERNELS)
    check_head(head, rows, 3, "generic", "float32")
    ok(any(x.endswith(", synthetic") for x in head), "made-up weights are said to be", head)
    same([(r["kernel"], r["tokens"]) for r in rows], [("attention", "64"), ("attention", "640")], "--only")
    lines = xml.etree.ElementTree.parse(plot).getroot().findall("{*}polyline")
    same([len(x.get("points").split()) for x in lines], [2] * 5, "a line a part of the model, a point a context")
    device = re.match(r"# device (.+), driver ", head[1])[1]
    texts = [x.text for x in xml.etree.ElementTree.parse(plot).getroot().findall("{*}text")]
    same(texts[-1], f"{MODEL} (synthetic weights), {device}, kernels generic, float32" +
         (", void" if rows[0]["note"] == "void" else ""), "the figure says what was measured")
    same(sorted(os.listdir(folder)), ["plot.svg"], "and nothing else is left there")
    out = bench("steps", "--prefill", "64", "--decode", "0", "--plot", "/proc/nowhere/plot.svg", "--device", "nobody")
    ok(out.returncode == 1 and "--plot /proc/nowhere/plot.svg" in out.stderr,
       "a figure that cannot be written is said before the work", out)

    out = bench("steps", "--prefill", "100,200,5000", "--decode", "1,3", "--context", "0,4096", "--steps", "4",
                "--repeat", "3", "--max-batched-tokens", "128", "--plot", plot)
    head, rows = table(out, STEPS)
    model = next(x for x in head if x.startswith("# model "))
    bytes_of = [float(x) for x in re.findall(r"\d+\.\d{3}", model)]
    same(len(bytes_of), 1 + ("coded from" in model), "weights, and what they are coded from")
    ok(len(bytes_of) == 1 or 0.7 < bytes_of[0] / bytes_of[1] < 0.95, "of which codes take less", model)
    best = check_head([x for x in head if "left out" not in x], rows, 7, auto(out), "bfloat16")
    ok(f"# prefill 5000 left out: the model goes to {MOST} tokens" in head, "what the model cannot do is left out", head)
    same([(r["step"], r["streams"], r["tokens"], r["steps"]) for r in rows],
         [("prefill", "1", "100", "1"), ("prefill", "1", "200", "2"), ("decode", "1", "0", "4"),
          ("decode", "1", str(MOST - 4), "4"), ("decode", "3", "0", "4"), ("decode", "3", str(MOST - 4), "4")],
         "prompts in steps of 128 tokens, streams by context as far as the model goes")
    bad = [r for r in rows
           if not float(r["ms_min"]) <= float(r["ms"]) <= float(r["ms_max"]) or r["bound"] not in ("bytes", "flops") or
           not close(float(r["tokens/s"]), float(r["tokens" if r["step"] == "prefill" else "streams"]) * 1e3 /
                     float(r["ms"]), 0.02) or
           not 0 < float(r["share_%"]) < 1000 or float(r["launches"]) < 1]
    ok(not bad, "times, tokens a second and shares go together", bad)
    by = {(r["step"], r["streams"], r["tokens"]): r for r in rows}
    one = by["decode", "1", str(MOST - 4)]
    same(float(one["experts"]), float(TOP_K), "a stream touches as many experts as it chooses")
    out = bench("steps", "--prefill", "0", "--decode", "1", "--context", "64", "--repeat", "1", "--separate-launches",
                "--plain-weights", "--cache-memory", "64M")
    head, rows = table(out, STEPS)
    ok(any(x.startswith("# model ") and "coded" not in x for x in head), "--plain-weights are not coded", head)
    ok(len(rows) == 1 and float(rows[0]["launches"]) >= max(float(one["launches"]), 8 * LAYERS),
       "--separate-launches", (rows, one))
    ok(float(one["GB"]) > float(by["decode", "1", "0"]["GB"]), "a longer context is more to read", one)
    ok(one["bound"] != "bytes" or close(float(one["share_%"]), float(one["GB"]) * 1e14 / best["read"] / float(one["ms"]),
                                        0.05, 1), "the share is that of reading at its peak", one)
    lines = xml.etree.ElementTree.parse(plot).getroot().findall("{*}polyline")
    same([len(x.get("points").split()) for x in lines], [2, 2, 2], "prompts, one stream, three streams")
    out = bench("steps", "--prefill", "64", "--decode", "2", "--context", "0", "--steps", str(MOST + 1), "--repeat", "1")
    head, rows = table(out, STEPS)
    left_out = f"# decode of 2 streams at 0 tokens left out: the model goes to {MOST} tokens, fewer than --steps {MOST + 1}"
    ok(left_out in head and [r["step"] for r in rows] == ["prefill"], "more steps than the model has positions", head)

for queue, said in (("own", "a queue of their own"), ("auto", "the queue of the steps")):
    out = bench("copies", "--decode", "1,2", "--context", "100", "--repeat", "1", "--steps", "4", "--copy-queue", queue,
                "--in-flight", "2M")
    head, rows = table(out, "copies item memory streams tokens ms tokens/s GB/s".split())
    ok(auto(out) == "nvidia" or f"# copies on {said}, at most 2.1 MB under way" in head, f"--copy-queue {queue}", head)
    same([(r["copies"], r["item"], r["memory"], r["streams"]) for r in rows],
         [("none", "-", "-", "1"), ("none", "-", "-", "2")] +
         [(copies, item, memory, streams) for item in ("page", "state") for copies in ("read", "write")
          for memory in ("pinned", "plain") for streams in "012"], "steps alone, and each copy alone and beside steps")
    bad = [r for r in rows
           if (r["GB/s"] == "-") != (r["copies"] == "none") or (r["ms"] == "-") != (r["streams"] == "0") or
           (r["GB/s"] != "-" and not 0 <= float(r["GB/s"]) < 1000) or
           (r["ms"] != "-" and not close(float(r["tokens/s"]), float(r["streams"]) * 1e3 / float(r["ms"]), 0.02))]
    ok(not bad and all(float(r["GB/s"]) > 0 for r in rows if r["streams"] == "0"), "bytes are copied", rows)

for args, want in ((["steps", "--repeat", "0"], "--repeat"), (["steps", "--decode", "1,x"], "--decode"),
                   (["steps", "--decode", "1,,2"], "--decode"), (["steps", "--only", "embed"], "--only"),
                   (["kernels", "--steps", "3"], "--steps"), (["copies", "--prefill", "64"], "--prefill"),
                   (["steps", "--copy-queue", "own"], "--copy-queue"), (["copies", "--copy-queue", "two"], "auto, shared or own"),
                   (["kernels", "--dtype", "int4"], "--dtype"),
                   (["kernels", "--prefill", "0", "--decode", "0"], "nothing to measure"),
                   (["steps", "--plot", "/"], "/: Is a directory"), (["kernels", "--plot", "/proc/nowhere/x"], "/proc/nowhere/x"),
                   (["kernels", "x"], "unexpected"), (["steps", "--device"], "needs a value"),
                   (["steps", "--prefill", "9999", "--decode", "0"], "nothing to measure"),
                   (["kernels", "--dtype", "bf16"], '--dtype: "bf16" is none of float32 or bfloat16'),
                   (["kernels", "--synthetic-weights", "1", "--synthetic-types", "Q9_K"], "--synthetic-types Q9_K: no such type or recipe"),
                   (["kernels", "--decode", "1,4097"],
                    '--decode: "1,4097" is not a list of numbers from 1 to 4096, nor 0 for none'),
                   (["kernels", "--context", "-1"], '--context: "-1" is not a list of numbers from 0 to 16777216'),
                   (["steps", "--repeat", "1001"], "--repeat: 1001 is not between 1 and 1000"),
                   (["steps", "--prefil", "1"], "unknown option --prefil; did you mean --prefill?"),
                   (["steps", "--plain-weights=off"], "--plain-weights takes no value"),
                   (["steps", "--cache-memory", "2Q"], "--cache-memory: \"2Q\" is neither bytes (8G) nor a share (0.6, 60%)"),
                   (["steps", "--device", "nobody"], '--device: no OpenCL device matches "nobody"; tigon devices lists them'),
                   (["kernels", "--only", "nobody"], '--only: "nobody" is none of the kernels ')):
    out = bench(*args)
    ok(out.returncode == 1 and want in out.stderr and len(out.stderr.splitlines()) == 1, f"{args}: one sentence", out)
listed = out.stderr.split(" kernels ")[-1].strip().split(", ")
same(sorted(launched - set(listed)), [], "--only knows every kernel that was launched")
same(len(listed), len(set(listed)), "and names each once")
out = bench("steps", "--synthetic-types", "Q4_K")
ok(out.returncode == 1 and "--synthetic-types needs --synthetic-weights" in out.stderr, "types of weights that are not synthetic", out)
with tempfile.TemporaryDirectory() as cache:
    with open(os.path.join(cache, "pocl"), "w"):
        pass
    out = subprocess.run([TIGON, "bench", "steps", "--model", MODEL, "--program-cache", cache], capture_output=True, text=True, timeout=600,
                         env={name: value for name, value in os.environ.items() if name != "POCL_CACHE_DIR"})
    ok(out.returncode == 1 and f"{cache}/pocl cannot be written: Not a directory" in out.stderr, "a file in the place of PoCL's cache", out)
    same([x for x in os.listdir(cache) if x.endswith(".clbin")], [], "and what the device can do is not noted then")
out = bench("steps", model=None)
ok(out.returncode == 1 and "--model" in out.stderr, "no model", out)
out = bench("steps", model="/nowhere")
ok(out.returncode == 1 and "/nowhere" in out.stderr, "a model that is not there", out)
for part in ("kernels", "steps", "copies", "serve"):
    out = subprocess.run([TIGON, "bench", part, "--help"], capture_output=True, text=True)
    ok(out.returncode == 0 and f"tigon bench {part}" in out.stdout, f"{part} --help", out)
with open("/dev/full", "w") as full:
    out = subprocess.run([TIGON, "bench", "steps", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
ok(out.returncode == 1 and "standard output" in out.stderr, "rows that cannot be written are no success", out)
out = subprocess.run([TIGON, "bench", "wash"], capture_output=True, text=True)
ok(out.returncode == 1 and "wash" in out.stderr, "a part that is not there", out)
done()
