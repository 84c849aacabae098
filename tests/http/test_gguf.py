"""A GGUF file as --model: its name, its tokens and its template over HTTP are those of the folder; starts that fail say why."""
import json
import os
import struct
import subprocess
import tempfile

from harness import MODEL, TIGOND, Server, done, messages, ok, same

folder = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(folder.name, name)


def read(name):
    with open(os.path.join(MODEL, name), encoding="utf-8") as f:
        return f.read()


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, value):
    """A key: a number of 32 bits, a float, a text, or a list of texts or numbers."""
    kinds = {int: (4, lambda v: struct.pack("<I", v)), float: (6, lambda v: struct.pack("<f", v)), str: (8, text)}
    if isinstance(value, list):
        kind, pack = kinds[type(value[0])]
        return text(name) + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(pack, value))
    kind, pack = kinds[type(value)]
    return text(name) + struct.pack("<I", kind) + pack(value)


def write_gguf(name, keys):
    """A file without tensors: the pseudo model has no weights."""
    with open(path(name), "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(key(k, v) for k, v in keys.items()))
    return path(name)


config, tokenizer = json.loads(read("config.json")), json.loads(read("tokenizer.json"))
tokens = [""] * config["vocab_size"]
kinds = [1] * config["vocab_size"]
for token, number in tokenizer["model"]["vocab"].items():
    tokens[number] = token
for added in tokenizer["added_tokens"]:
    kinds[added["id"]] = 3 if added["special"] else 4
a = "qwen35moe."
keys = {
    "general.architecture": "qwen35moe",
    a + "block_count": 9, a + "nextn_predict_layers": 1, a + "context_length": 4096, a + "embedding_length": 256,
    a + "attention.head_count": 4, a + "attention.head_count_kv": 2, a + "attention.key_length": 64,
    a + "attention.layer_norm_rms_epsilon": 1e-6, a + "rope.freq_base": 10000.0, a + "rope.dimension_count": 16,
    a + "ssm.conv_kernel": 4, a + "ssm.state_size": 64, a + "ssm.group_count": 2, a + "ssm.time_step_rank": 4,
    a + "ssm.inner_size": 256, a + "expert_count": 32, a + "expert_used_count": 4, a + "expert_feed_forward_length": 64,
    a + "expert_shared_feed_forward_length": 64,
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]],
    "tokenizer.chat_template": read("chat_template.jinja"),
}
file = write_gguf("small-model.gguf", keys)
chat = {"messages": messages("What is a violin? 12345"), "max_tokens": 8, "temperature": 0}

s = Server()
want = [s.post("/apply-template", chat)[1], s.post("/tokenize", {"prompt": read("README.md")})[1]["tokens"]]
s.stop()
s = Server(model=file)
same([s.post("/apply-template", chat)[1], s.post("/tokenize", {"prompt": read("README.md")})[1]["tokens"]], want,
     "prompt and tokens are those of the folder")
same(json.loads(s.get("/v1/models")[1])["data"][0]["id"], "small-model", "the name has no .gguf")
same(s.post("/api/show", {"model": "small-model"})[1]["details"]["format"], "gguf", "Ollama's clients see the format")
status, answer = s.post("/v1/chat/completions", {**chat, "model": "small-model"})[:2]
ok(status == 200 and answer["usage"]["completion_tokens"] > 0, "an answer", answer)
s.stop()

split = {**keys, "split.no": 0, "split.count": 2}
missing = write_gguf("big-00001-of-00002.gguf", split)
other = write_gguf("other.gguf", {**keys, "general.architecture": "gpt2"})


def refused(name, want, model):
    out = subprocess.run([TIGOND, "--model", model, "--port", "0"], capture_output=True, text=True, timeout=60)
    ok(out.returncode == 1 and out.stderr.splitlines()[-1].endswith(want), name, out.stderr[-500:])


refused("a part of a split model is missing", "big-00002-of-00002.gguf: cannot open: No such file or directory", missing)
refused("a directory with several models",
        f"{folder.name}: there are several models, big-00001-of-00002.gguf and other.gguf: name a file", folder.name)
refused("another architecture", 'but must be qwen35, qwen35moe, qwen3next, qwen3, qwen3moe, qwen2, llama or gemma3', other)
done()
