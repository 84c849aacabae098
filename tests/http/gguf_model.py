"""GGUF files without tensors, for tests with the pseudo model, which has no weights."""
import json
import os
import struct

from harness import MODEL


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


def write_gguf(path, keys):
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(key(k, v) for k, v in keys.items()))
    return path


def lexis_keys():
    """The keys of lexis: configuration, tokenizer and template."""
    config, tokenizer = json.loads(read("config.json")), json.loads(read("tokenizer.json"))
    tokens = [""] * config["vocab_size"]
    kinds = [1] * config["vocab_size"]
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number] = token
    for added in tokenizer["added_tokens"]:
        kinds[added["id"]] = 3 if added["special"] else 4
    a = "qwen35moe."
    return {
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
