#!/usr/bin/env python3
"""How far tigon's predictions of a text are from llama.cpp's, both from one GGUF file.

    beside_llama_cpp.py TIGON MODEL.gguf TEXT [--windows N] [--threads N] [--dtype float32] [--reference] [--program-cache DIR]

Needs numpy, gguf and llama-cpp-python of PyPI. The text is read in windows of 512 tokens, of which all but the first are
predicted, each from those before it: 4 windows by default, 2,044 predictions. Each row of the table compares the first program with the second one: KL divergence in nats, the largest
difference of logits, the share of positions with the same greedy choice, and with a margin of more than twice that position's
largest difference, where the choice has to be the same.

--reference computes the logits also in float64, by numpy from the weights that gguf-py decodes, so that it can be seen
which program is nearer. It knows the llama architecture alone, without scaling of RoPE.
"""
import argparse
import ctypes
import json
import os
import subprocess

import tempfile

import gguf
import numpy as np

CONTEXT, UNSCORED = 512, 0


def tigon(options, dtype, folder):
    """The report of `tigon eval`, and the logits [predictions, vocabulary]."""
    path = os.path.join(folder, dtype)
    command = [options.tigon, "eval", "--model", options.model, "--text", options.text, "--dtype", dtype, "--logits", path, "--json",
               "--windows", str(options.windows), "--context", str(CONTEXT), "--unscored", str(UNSCORED)]
    if options.program_cache:
        command += ["--program-cache", options.program_cache]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        shape = json.loads(f.read(length))["logits"]["shape"]
    return json.loads(out.stdout), np.memmap(path, np.float32, "r", 8 + length, tuple(shape))


def llama_cpp(options):
    """The tokens of the windows [windows, CONTEXT] and llama.cpp's logits [predictions, vocabulary]."""
    import llama_cpp as l
    l.llama_backend_init()
    # Without a log of every tensor. The callback must live as long as the library may call it.
    llama_cpp.quiet = l.llama_log_callback(lambda level, text, user: None)
    l.llama_log_set(llama_cpp.quiet, None)
    model = l.llama_model_load_from_file(options.model.encode(), l.llama_model_default_params())
    vocabulary = l.llama_model_get_vocab(model)
    with open(options.text, "rb") as f:
        text = f.read()
    ids = (l.llama_token * (len(text) + 16))()
    n = l.llama_tokenize(vocabulary, text, len(text), ids, len(ids), True, False)
    count = min(n // CONTEXT, options.windows or n // CONTEXT)
    windows = np.array(ids[:count * CONTEXT], np.int32).reshape(count, CONTEXT)
    if l.llama_vocab_get_add_bos(vocabulary):
        windows[:, 0] = l.llama_vocab_bos(vocabulary)
    params = l.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
    params.n_threads = params.n_threads_batch = options.threads
    context = l.llama_init_from_model(model, params)
    batch = l.llama_batch_init(CONTEXT, 0, 1)
    size, rows = l.llama_vocab_n_tokens(vocabulary), []
    for window in windows:
        l.llama_memory_clear(l.llama_get_memory(context), True)
        batch.n_tokens = CONTEXT
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), i, 1, 0
            batch.logits[i] = UNSCORED <= i < CONTEXT - 1
        assert l.llama_decode(context, batch) == 0
        logits = ctypes.cast(l.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        rows.append(np.ctypeslib.as_array(logits, (CONTEXT - 1 - UNSCORED, size)).copy())
    return windows, np.concatenate(rows)


def reference(options, windows):
    """The logits of a llama in float64."""
    r = gguf.GGUFReader(options.model)

    def key(name, default=None):
        f = r.get_field("llama." + name)
        return f.contents() if f else default

    def norm(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + key("attention.layer_norm_rms_epsilon")) * w

    w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in r.tensors}
    assert "rope_freqs.weight" not in w and r.get_field("general.architecture").contents() == "llama"
    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    d = key("embedding_length") // heads
    angle = np.arange(CONTEXT)[:, None] * key("rope.freq_base", 10000.0) ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    mask = np.triu(np.full((CONTEXT, CONTEXT), -np.inf), 1)

    def rotate(x):  # neighbours are a pair, as the converter leaves them
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)

    rows = []
    for window in windows:
        x = w["token_embd.weight"][window]
        for i in range(key("block_count")):
            def of(name):
                return w[f"blk.{i}.{name}.weight"]
            h = norm(x, of("attn_norm"))
            q = rotate((h @ of("attn_q").T).reshape(CONTEXT, heads, d))
            k = rotate((h @ of("attn_k").T).reshape(CONTEXT, kv_heads, d)).repeat(heads // kv_heads, 1)
            v = (h @ of("attn_v").T).reshape(CONTEXT, kv_heads, d).repeat(heads // kv_heads, 1)
            s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d) + mask
            s = np.exp(s - s.max(-1, keepdims=True))
            s /= s.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", s, v).reshape(CONTEXT, -1) @ of("attn_output").T
            h = norm(x, of("ffn_norm"))
            g = h @ of("ffn_gate").T
            x = x + (g / (1 + np.exp(-g)) * (h @ of("ffn_up").T)) @ of("ffn_down").T
        h = norm(x[UNSCORED:-1], w["output_norm.weight"])
        rows.append(h @ w.get("output.weight", w["token_embd.weight"]).T)
    return np.concatenate(rows)


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())


def perplexity(logits, targets):
    return np.exp(-np.mean([log_softmax(row)[t] for row, t in zip(logits, targets)]))


def compare(name, p, q):
    """A row of the table: how far the logits p are from q."""
    kl, difference, same, decided = [], [], 0, 0
    for a, b in zip(p, q):
        x, y = log_softmax(a), log_softmax(b)
        kl.append((np.exp(y) * (y - x)).sum())
        difference.append(np.abs(a.astype(np.float64) - b).max())
        second, first = np.partition(b, -2)[-2:]
        equal = a.argmax() == b.argmax()
        decides = first - second > 2 * difference[-1]
        assert equal or not decides
        same += equal
        decided += decides
    n = len(kl)
    print(f"{name}\t{np.mean(kl):.3g}\t{np.median(kl):.3g}\t{np.quantile(kl, .99):.3g}\t{max(kl):.3g}\t{np.mean(difference):.3g}\t"
          f"{max(difference):.3g}\t{100 * same / n:.2f}\t{100 * decided / n:.2f}", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tigon")
parser.add_argument("model")
parser.add_argument("text")
parser.add_argument("--windows", type=int, default=4)
parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of llama.cpp")
parser.add_argument("--dtype", action="append", choices=("bfloat16", "float32"))
parser.add_argument("--reference", action="store_true")
parser.add_argument("--program-cache")
o = parser.parse_args()

windows, peer = llama_cpp(o)
targets = windows[:, UNSCORED + 1:].reshape(-1)
all_logits = {"llama.cpp": peer}
print(f"# {windows.size} tokens, {len(targets)} of them predicted")
print(f"perplexity of llama.cpp\t{perplexity(peer, targets):.4f}", flush=True)
if o.reference:
    all_logits["float64"] = reference(o, windows)
    print(f"perplexity of float64\t{perplexity(all_logits['float64'], targets):.4f}", flush=True)
with tempfile.TemporaryDirectory() as folder:
    for dtype in o.dtype or ("bfloat16", "float32"):
        report, logits = tigon(o, dtype, folder)
        assert logits.shape == peer.shape, "the tokenizers differ"
        all_logits[f"tigon {dtype}"] = logits
        print(f"perplexity of tigon {dtype}\t{report['model']['perplexity']:.4f}\tby its logits\t{perplexity(logits, targets):.4f}",
              flush=True)
    print("compared\tKL mean\tmedian\t99 %\tlargest\tmean largest difference\tlargest\tsame choice %\tmargin decides %")
    names = list(all_logits)
    for i, name in enumerate(names):
        for other in names[:i]:
            compare(f"{name} with {other}", all_logits[name], all_logits[other])

