"""While a daemon loads files it needs hardly more memory than afterwards. The model: lexis with 96 layers, 0.35 GB of weights."""
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import MODEL, Server, done, ok, same

TIGON = os.path.abspath(sys.argv[2])
OPTIONS = ("--max-num-seqs", "2", "--max-model-len", "256", "--cache-memory", "96M")

with tempfile.TemporaryDirectory() as folder:
    shape, model = os.path.join(folder, "shape"), os.path.join(folder, "model")
    os.mkdir(shape)
    with open(MODEL + "/config.json") as f:
        config = json.load(f)
    config["layer_types"] *= 12
    config["num_hidden_layers"] = len(config["layer_types"])
    with open(shape + "/config.json", "w") as f:
        json.dump(config, f)
    out = subprocess.run([TIGON, "export", "--model", shape, "--synthetic-weights", "1", "--tokenizer", MODEL, "--out", model],
                         capture_output=True, text=True)
    ok(out.returncode == 0, "a checkpoint is written", out)
    Server(*OPTIONS, model=model).stop("kernels are compiled")  # before, because compiling takes memory, too

    s = Server(*OPTIONS, model=model)
    answer = s.complete("a", max_tokens=4, ignore_eos=True)
    same((answer[0], answer[1]["usage"]["completion_tokens"]), (200, 4), "it answers")
    with open(f"/proc/{s.process.pid}/status") as f:
        status = dict(re.findall(r"(Vm\w+):\s+(\d+) kB", f.read()))
    peak, now = int(status["VmHWM"]) / 1024, int(status["VmRSS"]) / 1024
    size = sum(os.path.getsize(os.path.join(model, name)) for name in os.listdir(model)) / 2**20
    ok(size > 300 and now > 300, f"{size:.0f} MiB of files, {now:.0f} MiB of memory")
    ok(peak <= 1.15 * now, f"of which there were never more than {peak:.0f} MiB, {peak / now:.2f} times")
    ok(re.search(r"info: loaded 0\.\d\d of 0\.\d\d GiB of weights\n", s.text())
       and re.search(r"info: loaded 0\.\d\d GiB of weights\n", s.text()), "the log says how far it has come", s.text())
    s.stop()
done()
