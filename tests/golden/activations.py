#!/usr/bin/env python3
"""Every tensor of MODEL/activations.npz against the engine's in float32: max|d| <= 1e-5 max|ref|.

usage: activations.py TEST_ACTIVATIONS MODEL [CASE [VARIANT]]        prints TAP
"""
import json, os, struct, subprocess, sys, tempfile
import numpy as np

BOUND = 1e-5


def load_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[a:b], np.float32).reshape(t["shape"])
    return out


def main():
    program, model = sys.argv[1:3]
    case = sys.argv[3] if len(sys.argv) > 3 else "codes-6-1"
    want = np.load(os.path.join(model, "activations.npz"))
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "dump.safetensors")
        subprocess.run([program, model, case, out] + sys.argv[4:5], check=True, stdout=subprocess.DEVNULL)
        got = load_safetensors(out)
    names = [n for n in want.files if n != "prompt_ids"]
    failed = 0
    for i, name in enumerate(names):
        ref = want[name].astype(np.float64)
        mine = got.get(name)
        good = mine is not None and mine.shape == ref.shape
        ratio = float(np.abs(mine - ref).max() / np.abs(ref).max()) if good else float("nan")
        good = good and ratio <= BOUND
        failed += not good
        print(f"{'ok' if good else 'not ok'} {i + 1} - {name}: {ratio:.2e} of the largest value")
    print(f"1..{len(names)}")
    return failed != 0


sys.exit(main())
