"""`tigon inspect`: what it says of models on disk, beside their own headers, and of a model's memory.

    test_inspect.py TIGON
"""
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
from harness import done, ok, same  # noqa: E402

TIGON = sys.argv[1]
LEXIS = "models/lexis"
BYTES = {"BF16": 2, "F16": 2, "F32": 4}
scratch = tempfile.TemporaryDirectory()


def run(*args):
    return subprocess.run([TIGON, "inspect", *args], capture_output=True, text=True, timeout=120)


def inspect(*args):
    r = run(*args, "--json")
    ok(r.returncode == 0 and not r.stderr, f"{args[0]}: JSON", r)
    return json.loads(r.stdout)


def headers(folder):
    """name -> type and shape of all tensors of a folder."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with open(path, "rb") as f:
            found |= json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    found.pop("__metadata__", None)
    return found


def groups(tensors):
    """(pattern, type, shape) -> number and bytes."""
    found = {}
    for name, t in tensors.items():
        key = (".".join("*" if p.isdecimal() else p for p in name.split(".")), t["dtype"], tuple(t["shape"]))
        n, size = found.get(key, (0, 0))
        begin, end = t["data_offsets"]
        found[key] = (n + 1, size + end - begin)
    return found


def seen(v):
    return {(g["name"], g["type"], tuple(g["shape"])): (g["number"], g["bytes"]) for g in v["tensors"]}


# ---- files ----

for folder in (LEXIS, *(f"tests/golden/tiny/{name}" for name in ("04-next", "23-qwen3-moe", "25-llama", "31-gemma3-window-2"))):
    tensors, v = headers(folder), inspect(folder)
    same(seen(v), groups(tensors), f"{folder}: all tensors, in groups")
    same(v["bytes"], sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors.values()), f"{folder}: their bytes")
    types = {t["dtype"] for t in tensors.values()}
    same({t["type"]: (t["number"], t["bits"]) for t in v["types"]},
         {t: (sum(u["dtype"] == t for u in tensors.values()), 8 * BYTES[t]) for t in types}, f"{folder}: their types")
    ok(v["served"] and "served_reason" not in v, f"{folder}: it is served", v["family"])
v = inspect(LEXIS)
same((v["family"], v["parameters"], v["context"], v["vocabulary"], v["format"], v["tokenizer"], v["chat_template"]),
     ("qwen3_5_moe", 17267632, 4096, 8192, "safetensors", True, True), "lexis")
same({k: n for k, n in v["layers"].items() if n}, {"attention": 2, "Gated DeltaNet": 6, "mixture of experts": 8}, "its layers")
v = inspect("tests/golden/tiny/25-llama")
ok(not v["tokenizer"] and "tokenizer.json" in v["tokenizer_reason"], "a folder without a tokenizer", v.get("tokenizer_reason"))

# ---- memory ----

for fit in inspect(LEXIS, "--memory", "1G")["memory"]:
    element = BYTES["F32" if fit["dtype"] == "float32" else "BF16"]
    same(fit["kv_bytes_per_token"], 2 * 2 * 2 * 64 * element, "keys and values: two layers of two heads of 64")
    same(fit["state_bytes_per_sequence"] % 6, 0, "states: six layers")
    ok(17e6 * element < fit["weight_bytes"] < 20e6 * element, "weights take a little more than their elements", fit)
    same(fit["memory_bytes"], 1 << 30, "--memory")
    same(fit["cache_bytes"], (1 << 30) - fit["weight_bytes"] - fit["work_space_bytes"], "the rest is for the cache")
    same(fit["tokens"], 4096, "the whole context fits")
    one = 4096 * fit["kv_bytes_per_token"] + fit["state_bytes_per_sequence"]
    same(fit["sequences"], (fit["cache_bytes"] - fit["state_bytes_per_sequence"]) // one, "and so many sequences")
for fit in inspect(LEXIS, "--kv-dtype", "int8", "--memory", "1G")["memory"]:
    same(fit["kv_bytes_per_token"], 2 * 2 * 2 * (64 + 4), "keys and values in int8: the same, with scales, of either type of elements")
by_type = {f["dtype"]: f for f in inspect(LEXIS, "--context", "64", "--device", "0")["memory"]}
same(set(by_type), {"float32", "bfloat16"}, "one device: both types")
ok(by_type["float32"]["sequences"] > 1000, "short sequences are many", by_type)
need = by_type["bfloat16"]["weight_bytes"] + by_type["bfloat16"]["work_space_bytes"]
state = by_type["bfloat16"]["state_bytes_per_sequence"]
fit = inspect(LEXIS, "--device", "0", "--memory", str(need + 2 * state + 129 * by_type["bfloat16"]["kv_bytes_per_token"]))["memory"][1]
same(fit["tokens"], 128, "two pages fit, not three")
fits = inspect(LEXIS, "--memory", "20M")["memory"]
ok(fits and all(f["cache_bytes"] == f["tokens"] == f["sequences"] == 0 for f in fits), "a model that does not fit", fits)

# ---- for people ----

r = run(LEXIS, "--memory", "1G")
ok(r.returncode == 0 and not r.stderr, "a table", r)
for line in (r"models/lexis: safetensors, 36\.80 MiB", r"layers +8: 2 attention, 6 Gated DeltaNet, 8 mixture of experts", r"served +yes",
             r"model\.layers\.\*\.mlp\.experts\.\*\.up_proj\.weight +256 BF16 +64, 256 +8388608 +16", r"BF16 +911 +19292720 +36\.80 MiB +16",
             r".*1\.00 GiB for the model", r"bfloat16 +\w+ .* 4096  \d+"):
    ok(re.search(f"^{line}$", r.stdout, re.M), f"it has {line}", r.stdout)

# ---- what is not served ----

strange = os.path.join(scratch.name, "strange")
shutil.copytree("tests/golden/tiny/25-llama", strange)
with open(os.path.join(strange, "config.json")) as f:
    config = json.load(f)
path = sorted(glob.glob(os.path.join(strange, "*.safetensors")))[0]
with open(path, "rb") as f:
    header = f.read(struct.unpack("<Q", f.read(8))[0])
    data = f.read()
victim = next(n for n, t in json.loads(header).items() if n.endswith("down_proj.weight") and t["dtype"] == "F32") \
    if b'"F32"' in header else next(n for n in json.loads(header) if n.endswith("down_proj.weight"))
entries = json.loads(header)
entries[victim]["dtype"] = {"F32": "I32", "BF16": "I16"}[entries[victim]["dtype"]]
header = json.dumps(entries).encode()
with open(path, "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header + data)
v = inspect(strange)
ok(not v["served"] and victim in v["served_reason"] and entries[victim]["dtype"] in v["served_reason"] and path in v["served_reason"],
   "a type that is not served, with tensor, type and file", v.get("served_reason"))
same([g["name"] for g in v["tensors"] if not g["served"]], [re.sub(r"\.\d+\.", ".*.", victim)], "its group is marked")
ok(v["memory"] == [] and v["bytes"] > 0, "what is there is shown all the same", v["memory"])
r = run(strange)
ok(r.returncode == 0 and re.search(rf"^{re.escape(victim)} has type I\d+, in which weights are not served", r.stdout, re.M), "so says the table", r)
config["model_type"] = "unheard_of"
with open(os.path.join(strange, "config.json"), "w") as f:
    json.dump(config, f)
v = inspect(strange)
ok(not v["served"] and "unheard_of" in v["served_reason"] and "family" not in v, "a family that is not served", v["served_reason"])
with open(path, "r+b") as f:
    f.truncate(100)
for args, want in ((("/no/such/model",), "/no/such/model"), ((strange,), os.path.basename(path)), ((), "a folder or a GGUF file"),
                   ((LEXIS, "--device", "no such"), "no OpenCL device matches"), ((LEXIS, "x"), "unexpected"),
                   ((LEXIS, "--memory", "0"), "--memory"), ((os.path.dirname(__file__),), "tests")):
    r = run(*args)
    ok(r.returncode == 1 and not r.stdout and want in r.stderr and r.stderr.count("\n") == 1, f"{' '.join(args)}: refused", r)
done()
