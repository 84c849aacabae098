"""`tigon quantize`, beside gguf-py: names by its tables, keys of the tokenizer by its SpecialVocab, blocks by its quantisers, and
the changes that llama.cpp's converter makes to numbers, written anew with numpy. And what is refused.

    test_quantize.py TIGON PROGRAMS

PROGRAMS: a folder for compiled programs.
"""
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
from harness import done, ok, same, skip_all  # noqa: E402

try:
    import gguf
    import numpy as np

    from converter import config_of, converted, tensors_of
except ImportError:
    skip_all("the packages gguf and numpy are not installed")

TIGON, PROGRAMS = sys.argv[1:3]
LEXIS, TINY = "models/lexis", "tests/golden/tiny"
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q5_0": 8, "Q4_K": 14, "Q4_K_M": 15, "UD-Q4_K_M": 15, "Q5_K": 16, "Q5_K_M": 17,
              "Q6_K": 18, "BF16": 32, "MXFP4_MOE": 38, "Q3_K": 11, "Q2_K": 10}
BY_GGUF_PY = ("F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_0", "MXFP4")
scratch = tempfile.TemporaryDirectory()


def at(*names):
    return os.path.join(scratch.name, *names)


def run(*args, **kwargs):
    return subprocess.run([TIGON, "quantize", *args], capture_output=True, text=True, timeout=300, **kwargs)


# ---- files ----

def read(path):
    return gguf.GGUFReader(path)


def field(r, key):
    return r.fields[key].contents() if key in r.fields else None


def stored(r):
    """name -> type and bytes of the rows."""
    return {t.name: (t.tensor_type.name, t.data) for t in r.tensors}


def floats(t):
    kind, data = t
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]).astype(np.float32)


def check(folder, recipe, path):
    """Compares a file's tensors with those that gguf-py makes. Returns the reader."""
    r, want = read(path), dict(converted(folder))
    got = stored(r)
    same(sorted(got), sorted(want), f"{folder} {recipe}: all names")
    bad = []
    for name, v in want.items():
        kind, data = got.get(name, (None, None))
        if kind is None or v is None:
            continue
        if v.ndim == 1 or "conv1d" in name or "ffn_gate_inp" in name:
            near = np.allclose(floats(got[name]), v, rtol=2e-7, atol=0) if name.endswith("ssm_a") else np.array_equal(floats(got[name]), v)
            if kind != "F32" or data.shape != v.shape or not near:
                bad.append((name, kind, data.shape, v.shape))
        elif kind in BY_GGUF_PY:
            blocks = gguf.quants.quantize(v, gguf.GGMLQuantizationType[kind])
            if blocks.tobytes() != data.tobytes():
                bad.append((name, kind, "other bytes"))
        elif np.sqrt(np.mean((floats(got[name]) - v) ** 2)) > {"Q2_K": 0.35, "Q3_K": 0.18}.get(kind, 0.08) * np.sqrt(np.mean(v ** 2)):
            bad.append((name, kind, "far off"))
    same(bad, [], f"{folder} {recipe}: all numbers")
    return r


def expected_keys(folder, recipe):
    """The converter's keys but those of the tokenizer, for lexis."""
    c = config_of(folder)
    a = "qwen35moe"
    return {
        "general.architecture": a, "general.type": "model", "general.name": os.path.basename(folder),
        "general.file_type": FILE_TYPES[recipe], "general.quantization_version": 2,
        f"{a}.block_count": c["num_hidden_layers"], f"{a}.context_length": c["max_position_embeddings"],
        f"{a}.embedding_length": c["hidden_size"], f"{a}.attention.head_count": c["num_attention_heads"],
        f"{a}.attention.head_count_kv": c["num_key_value_heads"], f"{a}.attention.key_length": c["head_dim"],
        f"{a}.attention.value_length": c["head_dim"], f"{a}.attention.layer_norm_rms_epsilon": float(np.float32(c["rms_norm_eps"])),
        f"{a}.rope.freq_base": 10000.0, f"{a}.rope.dimension_count": 16, f"{a}.rope.dimension_sections": [3, 3, 2, 0],
        f"{a}.expert_count": 32, f"{a}.expert_used_count": 4, f"{a}.expert_feed_forward_length": 64,
        f"{a}.expert_shared_feed_forward_length": 64, f"{a}.ssm.conv_kernel": 4, f"{a}.ssm.state_size": 64, f"{a}.ssm.group_count": 2,
        f"{a}.ssm.time_step_rank": 4, f"{a}.ssm.inner_size": 256, f"{a}.full_attention_interval": 4,
    }


# ---- lexis, every recipe ----

FILES = {}
for recipe in FILE_TYPES:
    FILES[recipe] = at(f"lexis-{recipe}.gguf")
    said = run(LEXIS, FILES[recipe], "--type", recipe)
    ok(said.returncode == 0 and re.search(r"148 tensors, [0-9.]+ MiB, [0-9.]+ bits a weight\n$", said.stdout), f"lexis as {recipe}", said)
    r = check(LEXIS, recipe, FILES[recipe])
    same(field(r, "general.file_type"), FILE_TYPES[recipe], f"{recipe}: general.file_type")
keys = {k: f.contents() for k, f in read(FILES["Q4_K_M"]).fields.items() if not k.startswith(("GGUF.", "tokenizer."))}
same(keys, expected_keys(LEXIS, "Q4_K_M"), "the converter's keys, and no others")
kinds = {n: k for n, (k, _) in stored(read(FILES["Q4_K_M"])).items()}
same({n: kinds[n] for n in ("token_embd.weight", "blk.0.attn_qkv.weight", "blk.0.ffn_gate_exps.weight", "blk.3.attn_q.weight", "blk.7.attn_v.weight",
                            "blk.1.ffn_down_exps.weight", "blk.0.ffn_down_exps.weight", "output_norm.weight", "blk.0.ssm_a")},
     {"token_embd.weight": "Q6_K", "blk.0.attn_qkv.weight": "Q5_K", "blk.0.ffn_gate_exps.weight": "Q4_K", "blk.3.attn_q.weight": "Q4_K",
      "blk.7.attn_v.weight": "Q6_K", "blk.1.ffn_down_exps.weight": "Q4_0", "blk.0.ffn_down_exps.weight": "Q8_0",
      "output_norm.weight": "F32", "blk.0.ssm_a": "F32"}, "Q4_K_M mixes types; rows of 64 get blocks of 32")
kinds = {k for n, (k, _) in stored(read(FILES["MXFP4_MOE"])).items() if "_exps" in n}
same(kinds, {"MXFP4"}, "MXFP4_MOE: the experts")

# ---- its tokenizer ----


class Keys:
    """Collects what SpecialVocab adds."""

    def __init__(self):
        self.found = {}

    def add_token_merges(self, v):
        self.found["merges"] = list(v)

    def add_chat_template(self, v):
        self.found["template"] = v

    def __getattr__(self, name):
        key = {"add_bos_token_id": "bos", "add_eos_token_id": "eos", "add_pad_token_id": "pad", "add_unk_token_id": "unk",
               "add_add_bos_token": "add_bos", "add_add_eos_token": "add_eos", "add_add_sep_token": "add_sep"}[name]
        return lambda v: self.found.__setitem__(key, v)


def tokenizer_keys(r):
    names = {"merges": "merges", "bos_token_id": "bos", "eos_token_id": "eos", "padding_token_id": "pad", "unknown_token_id": "unk",
             "add_bos_token": "add_bos", "add_eos_token": "add_eos"}
    found = {short: field(r, f"tokenizer.ggml.{name}") for name, short in names.items()}
    found["template"] = field(r, "tokenizer.chat_template")
    return {k: v for k, v in found.items() if v is not None}


def special(folder):
    k = Keys()
    gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(k, quiet=True)
    return k.found


with open(os.path.join(LEXIS, "tokenizer.json")) as f:
    tokenizer = json.load(f)
added = {t["content"]: (3 if t["special"] or re.fullmatch(r"<\|.*\|>", t["content"]) else 4) for t in tokenizer["added_tokens"]}
texts = {i: t for t, i in tokenizer["model"]["vocab"].items()} | {t["id"]: t["content"] for t in tokenizer["added_tokens"]}
r = read(FILES["Q8_0"])
tokens = [texts.get(i, f"[PAD{i}]") for i in range(8192)]
same(field(r, "tokenizer.ggml.tokens"), tokens, "the vocabulary")
same(field(r, "tokenizer.ggml.token_type"), [added.get(t, 1) if i in texts else 5 for i, t in enumerate(tokens)], "kinds of tokens")
same((field(r, "tokenizer.ggml.model"), field(r, "tokenizer.ggml.pre")), ("gpt2", "qwen2"), "model and pre-tokenizer")
same(tokenizer_keys(r), special(LEXIS), "merges, special tokens and template as gguf-py has them")

# The same tokenizer with tokens around a text, as Llama 3 has them.
other = at("other")
shutil.copytree(LEXIS, other, ignore=shutil.ignore_patterns("train", "*.npz", "golden.json"))
tokenizer["normalizer"] = None
tokenizer["model"]["ignore_merges"] = True
tokenizer["model"]["merges"] = [m.split(" ") if isinstance(m, str) else m for m in tokenizer["model"]["merges"]]
tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = \
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].replace(r"|\p{N}|", r"|\p{N}{1,3}|")
del tokenizer["pre_tokenizer"]["pretokenizers"][1]["trim_offsets"]
tokenizer["post_processor"] = {"type": "Sequence", "processors": [
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
     "pair": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "<|endoftext|>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
     "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}]}
with open(os.path.join(other, "tokenizer.json"), "w") as f:
    json.dump(tokenizer, f)
with open(os.path.join(other, "tokenizer_config.json"), "w") as f:
    json.dump({"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>", "special": True}, "model_max_length": 10 ** 30}, f)
with open(os.path.join(other, "generation_config.json"), "w") as f:
    json.dump({"eos_token_id": [2, 0], "temperature": 0.5, "top_k": 20, "top_p": 0.875, "min_p": 0, "do_sample": True}, f)
said = run(other, at("other.gguf"), "--type", "Q8_0", "--name", "another")
ok(said.returncode == 0, "another tokenizer", said)
r = read(at("other.gguf"))
want = special(other)
same({k: v for k, v in tokenizer_keys(r).items()}, {k: v for k, v in want.items() if k != "add_sep"}, "its keys as gguf-py has them")
ok(want["add_bos"] is True and want["bos"] == 0, "a token is added in front", want["bos"])
same([field(r, k) for k in ("tokenizer.ggml.pre", "general.name", "general.sampling.top_k", "general.sampling.temp", "general.sampling.top_p",
                            "general.sampling.min_p")], ["llama-bpe", "another", 20, 0.5, 0.875, 0.0], "its pre-tokenizer, name and sampling")
tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x+"
with open(os.path.join(other, "tokenizer.json"), "w") as f:
    json.dump(tokenizer, f)
said = run(other, at("no.gguf"), "--type", "Q8_0")
ok(said.returncode == 1 and "no known name in GGUF files" in said.stderr and not os.path.exists(at("no.gguf")), "a pre-tokenizer without a name", said)

with open(os.path.join(LEXIS, "tokenizer.json")) as f:
    good = f.read()
for change, want in ((lambda t: t["model"]["vocab"].__setitem__("far", 8192), "has the number 8192, but the model has 8192 tokens"),
                     (lambda t: t["model"]["vocab"].__setitem__("below", -1), "has no text, or no number"),
                     (lambda t: t["model"].pop("vocab"), "no vocabulary"), (lambda t: t["model"].pop("merges"), "no merges"),
                     (lambda t: t["model"]["merges"].append(["a", "b", "c"]), "no pair of texts"),
                     (lambda t: t["model"]["merges"].append(7), "no pair of texts"),
                     (lambda t: t["added_tokens"].append({"id": 3}), "has no text, or no number"),
                     (lambda t: t["model"].__setitem__("type", "Unigram"), "only BPE"),
                     (lambda t: t.__setitem__("normalizer", {"type": "NFKC"}), "no known name"),
                     (lambda t: t.__setitem__("pre_tokenizer", [1]), "no known name"), (lambda t: t.clear(), "only BPE")):
    tokenizer = json.loads(good)
    change(tokenizer)
    with open(os.path.join(other, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    said = run(other, at("no.gguf"), "--type", "Q8_0")
    ok(said.returncode == 1 and want in said.stderr and said.stderr.count("\n") == 1 and not os.path.exists(at("no.gguf")), f"a tokenizer: {want}", said)
with open(os.path.join(other, "tokenizer.json"), "w") as f:
    f.write(good[:-100])
said = run(other, at("no.gguf"), "--type", "Q8_0")
ok(said.returncode == 1 and "tokenizer.json" in said.stderr, "a tokenizer that was cut off", said)

# ---- every family ----

UNSAID = {"05-next-ratio-3": "norm_topk_prob", "17-next-mixed": "experts and layers without", "24-qwen3-moe-mixed": "norm_topk_prob"}
for folder in sorted(glob.glob(f"{TINY}/*")):
    name = os.path.basename(folder)
    path = at(f"{name}.gguf")
    said = run(folder, path, "--type", "F32")
    if name in UNSAID:
        ok(said.returncode == 1 and UNSAID[name] in said.stderr and said.stderr.count("\n") == 1 and not os.path.exists(path),
           f"{name}: refused, because a GGUF file cannot say it", said)
        continue
    ok(said.returncode == 0 and "no tokenizer" in said.stdout, f"{name}: written", said)
    check(folder, "F32", path)
    shown = subprocess.run([TIGON, "inspect", path, "--json"], capture_output=True, text=True, timeout=120)
    ok(json.loads(shown.stdout)["served"], f"{name}: tigon reads it", shown)
    os.remove(path)

# ---- Gemma 3: windows, and a tokenizer of SentencePiece's ----

gemma = at("gemma")
MARK = "\u2581"
special_tokens = ["<pad>", "<eos>", "<bos>", "<unk>"]
words = [MARK * 2, *(f"<0x{b:02X}>" for b in range(256)), MARK, "a", "b", "ab", MARK + "a", "ba", "aba"]
tokenizer = {
    "added_tokens": [{"id": i, "content": t, "special": i < 4, "normalized": False} for i, t in enumerate(special_tokens + words[:1])],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                                                 {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
              "vocab": {t: i for i, t in enumerate(special_tokens + words)},
              "merges": [[MARK, MARK], ["a", "b"], [MARK, "a"], ["b", "a"], ["ab", "a"], ["a", "ba"]]}}
shutil.copytree(f"{TINY}/29-gemma3", gemma)
with open(os.path.join(gemma, "tokenizer_config.json"), "w") as f:
    json.dump({"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>", "add_bos_token": True}, f)


def gemma_as(t):
    with open(os.path.join(gemma, "tokenizer.json"), "w") as f:
        json.dump(t, f)
    return run(gemma, at("gemma.gguf"), "--type", "Q8_0")


said = gemma_as(tokenizer)
ok(said.returncode == 0 and "no tokenizer" not in said.stdout, "gemma3 with a tokenizer", said)
r = read(at("gemma.gguf"))
n = 4 + len(words)
same([field(r, f"tokenizer.ggml.{k}") for k in ("model", "pre", "add_space_prefix", "add_bos_token", "bos_token_id", "eos_token_id", "unknown_token_id",
                                                "padding_token_id", "merges")],
     ["llama", "default", False, True, 2, 1, 3, 0, None], "the converter's keys")
same(field(r, "tokenizer.ggml.tokens"), [*special_tokens, "  ", *words[1:], *(f"[PAD{i}]" for i in range(n, 301))], "tokens of the user have spaces")
same(field(r, "tokenizer.ggml.token_type"), [3] * 4 + [4] + [6] * 256 + [1] * 7 + [5] * (301 - n), "kinds of tokens")
same(field(r, "tokenizer.ggml.scores"), [-1000] * 5 + [0] * 256 + [-4, -5, -6, 0, -1, -2, -3] + [-10000] * (301 - n), "scores, by the merges")
same({k: f.contents() for k, f in r.fields.items() if k.startswith("gemma3.") and "length" not in k and "count" not in k},
     {"gemma3.attention.layer_norm_rms_epsilon": float(np.float32(1e-6)), "gemma3.rope.freq_base": 1e6, "gemma3.rope.freq_base_swa": 1e4,
      "gemma3.attention.sliding_window": 40, "gemma3.attention.scale": float(np.float32(48 ** -0.5)),
      "gemma3.attention.sliding_window_pattern": [True, True, False, True]}, "keys of windows")
for change, want in ((lambda m: m["merges"].append(m["merges"].pop(4)), "none that scores of tokens can say"),
                     (lambda m: m["merges"].pop(), "none that scores of tokens can say"),
                     (lambda m: m["merges"].insert(2, m["merges"].pop()), "none that scores of tokens can say"),
                     (lambda m: m["merges"].append(["b", "b"]), "no pair of texts that make a token"),
                     (lambda m: m["merges"].append("ab"), "no pair of texts that make a token"),
                     (lambda m: m["vocab"].pop("<0x41>"), "no token <0x41>"),
                     (lambda m: m.__setitem__("byte_fallback", False), "no known name")):
    other_tokenizer = json.loads(json.dumps(tokenizer))
    change(other_tokenizer["model"])
    os.path.exists(at("gemma.gguf")) and os.remove(at("gemma.gguf"))
    said = gemma_as(other_tokenizer)
    ok(said.returncode == 1 and want in said.stderr and said.stderr.count("\n") == 1 and not os.path.exists(at("gemma.gguf")), f"refused: {want}", said)

# ---- a quantised folder ----

fp8 = at("fp8")
os.mkdir(fp8)
matrix = "model.layers.1.mlp.down_proj.weight"
source = tensors_of(f"{TINY}/21-qwen3")
rows, cols = source[matrix].shape
codes = np.random.default_rng(15).choice(np.array([0x38, 0xb8, 0x40, 0xb0, 0x00, 0x34], np.uint8), (rows, cols))
values = np.vectorize({0x38: 1, 0xb8: -1, 0x40: 2, 0xb0: -0.5, 0x00: 0, 0x34: 0.75}.get)(codes).astype(np.float32)
scales = (np.arange(-(-rows // 128) * -(-cols // 128), dtype=np.float32).reshape(-(-rows // 128), -1) + 1) / 64
parts = {n: ("F32", v.shape, v.tobytes()) for n, v in source.items() if n != matrix}
parts[matrix] = ("F8_E4M3", codes.shape, codes.tobytes())
parts[matrix + "_scale_inv"] = ("F32", scales.shape, scales.tobytes())
header, data = {}, b""
for n, (kind, shape, part) in parts.items():
    header[n] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
    data += part
with open(os.path.join(fp8, "model.safetensors"), "wb") as f:
    text = json.dumps(header).encode()
    f.write(struct.pack("<Q", len(text)) + text + data)
with open(os.path.join(fp8, "config.json"), "w") as f:
    json.dump(config_of(f"{TINY}/21-qwen3") | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, f)
said = run(fp8, at("fp8.gguf"), "--type", "F32")
ok(said.returncode == 0, "a folder with fp8 weights", said)
got = stored(read(at("fp8.gguf")))
want = values * np.repeat(np.repeat(scales, 128, 0)[:rows], 128, 1)[:, :cols]
same(np.array_equal(floats(got["blk.1.ffn_down.weight"]), want), True, "they are widened")

# ---- GGUF in ----

again = at("again.gguf")
for recipe in ("Q4_K_M", "Q8_0", "F32"):
    said = run(FILES["F32"], again, "--type", recipe)
    ok(said.returncode == 0, f"{recipe} from a GGUF file of floats", said)
    a, b = read(again), read(FILES[recipe])
    same({n: (k, v.tobytes()) for n, (k, v) in stored(a).items()}, {n: (k, v.tobytes()) for n, (k, v) in stored(b).items()},
         f"{recipe}: the same tensors as from the folder")
    same({k: f.contents() for k, f in a.fields.items() if not k.startswith("GGUF.")},
         {k: f.contents() for k, f in b.fields.items() if not k.startswith("GGUF.")}, f"{recipe}: the same keys")
said = run(FILES["Q8_0"], at("same.gguf"), "--type", "Q8_0")
same({n: v.tobytes() for n, (k, v) in stored(read(at("same.gguf"))).items()}, {n: v.tobytes() for n, (k, v) in stored(read(FILES["Q8_0"])).items()},
     "blocks of the wanted type are copied")
said = run(again, again, "--type", "Q4_0")
ok(said.returncode == 0 and field(read(again), "general.file_type") == 2, "a file may be written over itself", said)

# Two files, keys of its own, and a layer of multi-token prediction that this program does not compute.
w = gguf.GGUFWriter(at("split.gguf"), "qwen35moe", split_max_tensors=80)
source = read(FILES["F32"])
for k, f in source.fields.items():
    if not k.startswith("GGUF.") and k not in ("general.architecture", "qwen35moe.block_count"):
        kind = f.types[0]
        w.add_key_value(k, f.contents(), kind, sub_type=f.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
w.add_uint32("qwen35moe.block_count", 9)
w.add_uint32("qwen35moe.nextn_predict_layers", 1)
w.add_string("general.license", "free")
for t in source.tensors:
    w.add_tensor(t.name, np.array(t.data))
mtp = np.arange(64, dtype=np.float16).reshape(2, 32)
w.add_tensor("blk.8.nextn.eh_proj.weight", mtp)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
parts = sorted(glob.glob(at("split-*.gguf")))
said = run(parts[0], again, "--type", "Q4_K_M")
ok(len(parts) == 2 and said.returncode == 0, "split files", said)
r = read(again)
got = stored(r)
kind, data = got.pop("blk.8.nextn.eh_proj.weight")
ok(kind == "F16" and np.array_equal(data, mtp), "a tensor that is not computed is copied", kind)
same({n: (k, v.tobytes()) for n, (k, v) in got.items()}, {n: (k, v.tobytes()) for n, (k, v) in stored(read(FILES["Q4_K_M"])).items()},
     "one file with the others")
same([field(r, k) for k in ("general.license", "split.count", "qwen35moe.block_count")], ["free", None, 9], "its keys, without those of split files")

# ---- types of single tensors ----

said = run(LEXIS, again, "--type", "Q4_K_M", "--tensor-type", "blk.*.ffn_*_exps.weight=MXFP4", "--tensor-type=blk.0.ffn_up_exps.weight=Q8_0",
           "--tensor-type", "token_embd.weight=BF16")
ok(said.returncode == 0, "--tensor-type", said)
kinds = {n: k for n, (k, _) in stored(read(again)).items()}
same([kinds[n] for n in ("blk.0.ffn_up_exps.weight", "blk.1.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight", "token_embd.weight", "blk.3.attn_q.weight")],
     ["Q8_0", "MXFP4", "MXFP4", "BF16", "Q4_K"], "the last pattern that matches counts")
check(LEXIS, "with other types", again)
before = open(again, "rb").read()
for args, want in ((("--type", "Q3_K_XXL"), "there is no such recipe; there are F32"), ((), "--type RECIPE is required"),
                   (("--type", "Q8_0", "--tensor-type", "blk.9.*=Q8_0"), "no matrix has such a name"),
                   (("--type", "Q8_0", "--tensor-type", "output_norm.weight=Q8_0"), "no matrix has such a name"),
                   (("--type", "Q8_0", "--tensor-type", "*=IQ2_XXS"), "must be PATTERN=TYPE"),
                   (("--type", "Q8_0", "--tensor-type", "Q8_0"), "must be PATTERN=TYPE"),
                   (("--type", "Q8_0", "--tensor-type", "=Q8_0"), "must be PATTERN=TYPE"),
                   (("--type", "Q8_0", "--tensor-type", "blk.0.ffn_down_exps.weight=Q4_K"), "no whole blocks of 256")):
    said = run(LEXIS, again, *args)
    ok(said.returncode == 1 and want in said.stderr and said.stderr.count("\n") == 1, f"{' '.join(args)}: refused", said)
same(open(again, "rb").read() == before and not os.path.exists(again + ".partial"), True, "a file that was there stays as it was")

# ---- importance ----

text = at("text.txt")
with open("models/lexis/README.md") as f, open(text, "w") as g:
    g.write(f.read())
for recipe, sizes in (("Q4_K_M", {"Q4_K", "Q5_K", "Q6_K", "Q4_0"}), ("Q3_K", {"Q3_K", "Q4_0"})):
    said = run(LEXIS, again, "--type", recipe, "--importance", text, "--dtype", "float32", "--program-cache", PROGRAMS)
    ok(said.returncode == 0, f"{recipe} with the importance of a text", said)
    a, b, exact = stored(read(again)), stored(read(FILES[recipe])), stored(read(FILES["F32"]))
    same({n: (k, v.shape) for n, (k, v) in a.items()}, {n: (k, v.shape) for n, (k, v) in b.items()}, "types and shapes are the same")
    other = {n for n in a if a[n][1].tobytes() != b[n][1].tobytes()}
    same(other, {n for n, (k, _) in a.items() if k in sizes} - {"token_embd.weight"},
         "all matrices of types that have weights for it are others, but for the embedding")
    far = {n for n in other if np.sqrt(np.mean((floats(a[n]) - floats(exact[n])) ** 2)) > 0.25 * np.sqrt(np.mean(floats(exact[n]) ** 2))}
    same(far, set(), "and near the original")
for content, want in (("", "the text has no two tokens"), (None, "No such file")):
    if content is None:
        os.remove(text)
    else:
        open(text, "w").close()
    said = run(LEXIS, at("no.gguf"), "--type", "Q4_0", "--importance", text)
    ok(said.returncode == 1 and f"--importance {text}: " in said.stderr and want in said.stderr and said.stderr.count("\n") == 1
       and not os.path.exists(at("no.gguf")), f"refused: {want}", said)

# Squares in a file, as llama-imatrix writes them.

def squares_file(tensors, kind="imatrix"):
    w = gguf.GGUFWriter(at("imatrix.gguf"), "none")
    w.add_type(kind)
    for name, v in tensors.items():
        w.add_tensor(name, np.asarray(v, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return run(LEXIS, again, "--type", "Q4_0", "--importance", at("imatrix.gguf"))


shapes = {t.name: [int(n) for n in reversed(t.shape)] for t in read(FILES["Q4_0"]).tensors}
q, exps = "blk.3.attn_q.weight", "blk.1.ffn_gate_exps.weight"
cols, experts = shapes[q][1], shapes[exps][0]
some = 1 + np.arange(cols) % 7
said = squares_file({f"{q}.in_sum2": 3 * some, f"{q}.counts": [3], f"{exps}.in_sum2": np.tile(some, (experts, 1)),
                     f"{exps}.counts": [[e == 2] for e in range(experts)]})
ok(said.returncode == 0, "an imatrix", said)
a, b = stored(read(again)), stored(read(FILES["Q4_0"]))
same({n for n in a if a[n][1].tobytes() != b[n][1].tobytes()}, {q, exps}, "changes its matrices")
differs = [not np.array_equal(x, y) for x, y in zip(a[exps][1].reshape(experts, -1), b[exps][1].reshape(experts, -1))]
same([e for e in range(experts) if differs[e]], [2], "and of them the expert that has rows")
exact = floats(stored(read(FILES["F32"]))[q])
errors = [float((((floats(kind[q]) - exact) ** 2) * some).sum()) for kind in (a, b)]
ok(errors[0] < 0.97 * errors[1], "weighted errors are less", errors)
for tensors, kind, want in (({"blk.0.other.in_sum2": [1], "blk.0.other.counts": [1]}, "imatrix", "squares of none of the model's matrices"),
                            ({f"{q}.in_sum2": some[1:], f"{q}.counts": [1]}, "imatrix", f"{q}.in_sum2 is not 1 x {cols} numbers"),
                            ({f"{q}.in_sum2": some}, "imatrix", f"{q}.in_sum2 is not 1 x {cols} numbers"),
                            ({f"{q}.in_sum2": some, f"{q}.counts": [1, 1]}, "imatrix", f"{q}.in_sum2 is not 1 x {cols} numbers"),
                            ({f"{q}.in_sum2": some, f"{q}.counts": [1]}, "model", "no file of an importance matrix")):
    said = squares_file(tensors, kind)
    ok(said.returncode == 1 and want in said.stderr and said.stderr.count("\n") == 1, f"refused: {want}", said)
said = squares_file({f"{q}.in_sum2": np.full(cols, np.nan), f"{q}.counts": [1]})
same((said.returncode, stored(read(again))[q][1].tobytes() == b[q][1].tobytes()), (0, True), "squares that are no numbers count as none")

# ---- files that cannot be read or written ----

os.mkdir(at("folder"))
for args, want in ((("/no/such/model", at("x.gguf")), "/no/such/model"), ((LEXIS, at("folder")), "folder"), ((LEXIS, "/no/such/folder/x.gguf"), "/no/such/folder"),
                   ((LEXIS,), "are wanted"), ((LEXIS, at("x.gguf"), "more"), "unexpected"), ((at("folder"), at("x.gguf")), "folder")):
    said = run(*args, "--type", "Q8_0")
    ok(said.returncode == 1 and want in said.stderr and said.stderr.count("\n") == 1, f"{args}: refused", said)


def little_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


said = run(LEXIS, at("x.gguf"), "--type", "Q8_0", preexec_fn=little_disk)
ok(said.returncode == 1 and said.stderr.splitlines()[-1].endswith("x.gguf: cannot write: File too large"), "no room: one sentence", said)
same([f for f in os.listdir(scratch.name) if f.startswith("x.gguf")], [], "and nothing is left")
killed = subprocess.Popen([TIGON, "quantize", LEXIS, at("x.gguf"), "--type", "Q6_K"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while killed.poll() is None and not (os.path.exists(at("x.gguf.partial")) and os.path.getsize(at("x.gguf.partial"))):
    time.sleep(0.001)
killed.kill()
ok(killed.wait() == -signal.SIGKILL and not os.path.exists(at("x.gguf")), "a kill leaves no file of the name", killed.returncode)
said = run(LEXIS, at("x.gguf"), "--type", "Q6_K")
same(open(at("x.gguf"), "rb").read() == open(FILES["Q6_K"], "rb").read() and said.returncode == 0, True, "the next run writes the whole, bit for bit")

# A weight that is not finite.
broken = at("broken")
shutil.copytree(LEXIS, broken, ignore=shutil.ignore_patterns("train", "*.npz", "golden.json"))
path = os.path.join(broken, "model-00002-of-00004.safetensors")
with open(path, "r+b") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    start = f.tell()
    victim = next(n for n in header if n.endswith("experts.5.up_proj.weight"))  # a part of a tensor of the file
    f.seek(start + header[victim]["data_offsets"][0] + 128)
    f.write(b"\x80\x7f")
said = run(broken, at("y.gguf"), "--type", "Q8_0")
ok(said.returncode == 1 and f"tensor {victim} has a number that is not finite" in said.stderr and not os.path.exists(at("y.gguf")), "infinity", said)
with open(path, "r+b") as f:
    f.truncate(start + 1000)
said = run(broken, at("y.gguf"), "--type", "Q8_0")
ok(said.returncode == 1 and os.path.basename(path) in said.stderr and not os.path.exists(at("y.gguf")), "a file that was cut off", said)

# Mutated files are refused with one sentence, or are a model all the same; nothing crashes.
rng = random.Random(15)
whole = open(at("same.gguf"), "rb").read()
end = whole.index(b"output_norm.weight")
outcomes = {}
for i in range(150):
    data = bytearray(whole[:rng.randrange(len(whole))] if i % 5 == 0 else whole)
    for _ in range(rng.choice((1, 1, 2, 8))):
        where = rng.choice((rng.randrange(24), rng.randrange(1500), len(data) and rng.randrange(min(len(data), end + 200))))
        if where < len(data):
            data[where] = rng.choice((0, 1, 0x7f, 0xff, rng.randrange(256)))
    with open(at("mutant.gguf"), "wb") as f:
        f.write(data)
    if os.path.exists(at("out.gguf")):
        os.remove(at("out.gguf"))
    said = run(at("mutant.gguf"), at("out.gguf"), "--type", "Q4_0")
    lines = said.stderr.splitlines()
    good = said.returncode == 0 and os.path.exists(at("out.gguf")) or \
        said.returncode == 1 and not os.path.exists(at("out.gguf")) and lines and lines[-1].startswith("tigon quantize: ")
    outcomes[said.returncode] = outcomes.get(said.returncode, 0) + 1
    if not good:
        ok(False, f"mutation {i}", said)
ok(set(outcomes) <= {0, 1} and outcomes.get(1, 0) > 20 and not os.path.exists(at("out.gguf.partial")), "150 mutated files", outcomes)
done()
