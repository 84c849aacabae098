"""`tigon eval` on lexis: perplexities beside those of transformers, a comparison beside a naive one of the same logits.

    test_eval.py TIGON MODEL PROGRAM_CACHE Q8_0_OF
"""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
from harness import done, ok, same  # noqa: E402

TIGON, MODEL, CACHE, Q8_0_OF = sys.argv[1:5]
os.makedirs(CACHE, exist_ok=True)
scratch = tempfile.TemporaryDirectory()
END = 2


def at(name):
    return os.path.join(scratch.name, name)


def write(name, text):
    with open(at(name), "w", encoding="utf-8") as f:
        f.write(text)
    return at(name)


def run(*args, model=MODEL):
    return subprocess.run([TIGON, "eval", "--model", model, "--program-cache", CACHE, *map(str, args)], capture_output=True, text=True,
                          timeout=1200)


def report(*args, **kwargs):
    out = run("--json", *args, **kwargs)
    if not ok(out.returncode == 0, f"eval {' '.join(os.path.basename(str(a)) for a in args)}", out):
        done()
    return json.loads(out.stdout)


def near(a, b, tolerance, least=1e-12):
    return abs(a - b) <= tolerance * abs(b) + least


def logits_of(name):
    with open(at(name), "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))["logits"]
        return np.frombuffer(f.read(), np.float32).reshape(head["shape"])


def log_softmax(x):
    x = x.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as f:
    cases = json.load(f)["cases"]

# ---- perplexity ----

# An answer that transformers wrote behind its prompt: what it predicts are the answer's tokens, whose log-probabilities it gave.
for case in [c for c in cases if c["name"] in ("define-violin", "unicode", "long-senses")]:
    prompt, output = case["prompt_ids"], case["output_ids"]
    text = write("text", case["text"] + case["output"] + ("<|im_end|>" if output[-1] == END else ""))
    got = report("--text", text, "--dtype", "float32", "--context", len(prompt) + len(output), "--unscored", len(prompt) - 1,
                 "--logits", at("logits"))
    same([got[k] for k in ("tokens", "windows", "predictions")], [len(prompt) + len(output), 1, len(output)], "the answer is predicted")
    surprise = [-s["logprobs"][0] for s in case["steps"]]
    ok(near(got["model"]["perplexity"], math.exp(np.mean(surprise)), 2e-4) and near(got["model"]["mean_logprob"], -np.mean(surprise), 0, 2e-4),
       f"the perplexity is that of transformers, {got['model']['perplexity']:.5f}", (got, surprise))
    error = math.exp(np.mean(surprise)) * np.std(surprise, ddof=1) / math.sqrt(len(surprise))
    ok(near(got["model"]["perplexity_error"], error, 2e-3), "and so is its standard error", (got, error))
    rows = logits_of("logits")
    listed = [abs(log_softmax(row)[i] - p) for row, s in zip(rows, case["steps"]) for i, p in zip(s["ids"], s["logprobs"])]
    ok(len(rows) == len(output) and max(listed) <= 2e-4, f"--logits has transformers' within {max(listed):.2g}")

# ---- a comparison ----

CONTEXT, UNSCORED, WINDOWS = 70, 5, 3
long = next(c for c in cases if len(c["prompt_ids"]) > CONTEXT * WINDOWS)
ids = np.array(long["prompt_ids"][:CONTEXT * WINDOWS]).reshape(WINDOWS, CONTEXT)
targets = ids[:, UNSCORED + 1:].reshape(-1)
text = write("long", long["text"])
cut = ("--text", text, "--context", CONTEXT, "--unscored", UNSCORED, "--windows", WINDOWS)
got = report(*cut, "--against-dtype", "float32", "--logits", at("p"))
alone = report(*cut, "--dtype", "float32", "--logits", at("q"))
same([got["against"][k] for k in ("perplexity", "perplexity_error", "mean_logprob", "dtype", "model")],
     [alone["model"][k] for k in ("perplexity", "perplexity_error", "mean_logprob", "dtype", "model")], "the other model is as it is alone")
same((got["predictions"], got["windows"], got["tokens"], got["context"], got["unscored"]),
     (len(targets), WINDOWS, len(long["prompt_ids"]), CONTEXT, UNSCORED), "numbers of tokens")
p, q = logits_of("p"), logits_of("q")
log_p, log_q = np.array([log_softmax(x) for x in p]), np.array([log_softmax(x) for x in q])
kl = (np.exp(log_q) * (log_q - log_p)).sum(1)
chance = [np.exp(x[np.arange(len(targets)), targets]) for x in (log_p, log_q)]
difference = np.abs(p.astype(np.float64) - q).max(1)
best = np.sort(q.astype(np.float64), 1)
naive = {
    "kl_mean": kl.mean(), "kl_error": kl.std(ddof=1) / math.sqrt(len(kl)), "kl_median": np.sort(kl)[round((len(kl) - 1) / 2 + 1e-9)],
    "kl_p99": np.quantile(kl, .99, method="nearest"), "kl_max": kl.max(),
    "probability_rms": math.sqrt(((chance[0] - chance[1]) ** 2).mean()), "same_choice": (p.argmax(1) == q.argmax(1)).mean(),
    "decided": (best[:, -1] - best[:, -2] > 2 * difference).mean(), "logit_difference_max": difference.max(),
}
same(sorted(got["comparison"]), sorted(naive), "values of a comparison")
for name, want in naive.items():
    # Probabilities come from log-probabilities in float.
    ok(near(got["comparison"][name], want, 1e-3 if name == "probability_rms" else 1e-6), f"{name}: {want:.6g}", got["comparison"])
ok(got["comparison"]["kl_mean"] > 0 and near(got["model"]["perplexity"], math.exp(-np.log(chance[0]).mean()), 1e-5) and
   near(got["against"]["perplexity"], math.exp(-np.log(chance[1]).mean()), 1e-5), "perplexities are those of the logits", got)
ok(got["model"]["tokens_per_second"] > 0 and got["against"]["tokens_per_second"] > 0, "tokens a second", got)

table = run(*cut, "--against-dtype", "float32")
lines = [line.split("\t") for line in table.stdout.splitlines()]
ok(table.returncode == 0 and table.stdout.startswith("# tigon ") and
   [x[:5] for x in lines if x[0] == MODEL] == [[MODEL, dtype, "auto", f"{got[who]['perplexity']:.4f}", f"{got[who]['perplexity_error']:.4f}"]
                                              for who, dtype in (("model", "bfloat16"), ("against", "float32"))],
   "the table has the same perplexities", table)
ok(f"{100 * got['comparison']['same_choice']:.3f} % of the positions" in table.stdout and f"{got['comparison']['kl_p99']:.3g}" in table.stdout,
   "and the same comparison", table)

got = report(*cut, "--dtype", "float32", "--kv-dtype", "int8", "--against-kv-dtype", "auto", "--logits", at("int8"))
same([got[who][k] for who in ("model", "against") for k in ("dtype", "kv_dtype")], ["float32", "int8", "float32", "auto"],
     "the other model has another KV cache")
same(got["against"]["mean_logprob"], alone["model"]["mean_logprob"], "that of its elements")
log_8 = np.array([log_softmax(x) for x in logits_of("int8")])
kl = (np.exp(log_q) * (log_q - log_8)).sum(1).mean()
ok(near(got["comparison"]["kl_mean"], kl, 1e-6) and 0 < kl < 1e-3, f"int8 is {kl:.3g} nats from it", got["comparison"])

got = report(*cut, "--against", MODEL)
c = got["comparison"]
same([c[k] for k in ("kl_mean", "kl_max", "probability_rms", "logit_difference_max", "same_choice")], [0, 0, 0, 0, 1],
     "an equal checkpoint has no divergence and makes the same choices")
ok(c["decided"] > 0.95, "all of which but ties are decided", c)

# ---- a quantised file ----

subprocess.run([Q8_0_OF, MODEL, at("lexis.gguf")], check=True, stdout=subprocess.DEVNULL)
got = report(*cut, "--against", MODEL, model=at("lexis.gguf"))
c = got["comparison"]
ok(0 < c["kl_mean"] < 1e-2 and c["same_choice"] > 0.95 and c["logit_difference_max"] > 0.01 and
   near(got["model"]["perplexity"], got["against"]["perplexity"], 0.02), f"Q8_0: KL {c['kl_mean']:.3g}, {100 * c['same_choice']:.1f} % the same", got)

# ---- bad input ----


def swapped(tokenizer):
    vocab = tokenizer["model"]["vocab"]
    a, b = [t for t, i in vocab.items() if i in (300, 301)]
    vocab[a], vocab[b] = vocab[b], vocab[a]


def shorter(tokenizer):
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-3000]


def other_model(name, change):
    """lexis with another tokenizer; the weights are the same."""
    os.mkdir(at(name))
    for file in os.listdir(MODEL):
        if file.endswith(".json") or file.endswith(".safetensors"):
            os.symlink(os.path.abspath(os.path.join(MODEL, file)), os.path.join(at(name), file))
    os.remove(os.path.join(at(name), "tokenizer.json"))
    with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    change(tokenizer)
    with open(os.path.join(at(name), "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)
    return at(name)


short = write("short", "violin")
empty = write("empty", "")
for args, want in ((("--text", at("nowhere")), f"{at('nowhere')}: cannot open: No such file or directory"),
                   (("--text", scratch.name), f"{scratch.name}: not a regular file"),
                   (("--text", short), f"{short} has 3 tokens, fewer than a window of --context 512"),
                   (("--text", empty), f"{empty} has 0 tokens, fewer than a window of --context 512"),
                   ((), "--text FILE is required; --help lists the options"),
                   (("--text", text, "--context", 5000), f"--context 5000: {MODEL} goes to 4096 tokens"),
                   (("--text", text, "--context", 1), "--context: 1 is not between 2 and 16777216"),
                   (("--text", text, "--context", 64, "--unscored", 63),
                    "--unscored 63 leaves nothing to predict in a window of --context 64"),
                   (("--text", text, "--against", at("nowhere")), at("nowhere")),
                   (("--text", text, "--against-dtype", "int4"), '--against-dtype: "int4" is none of float32 or bfloat16'),
                   (("--text", text, "--against", other_model("swapped", swapped)),
                    "--against: another vocabulary, in which token 300 has other bytes"),
                   ((*cut, "--against", other_model("shorter", shorter)), f"--against: its tokenizer makes other tokens of {text}"),
                   ((*cut, "--logits", "/proc/nowhere/x"), "--logits: /proc/nowhere/x")):
    out = run(*args)
    ok(out.returncode == 1 and want in out.stderr and len(out.stderr.splitlines()) == 1 and not out.stdout,
       f"{[os.path.basename(str(a)) for a in args]}: one sentence", out)
done()
