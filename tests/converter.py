"""What llama.cpp's converter makes of a folder's tensors, written anew with numpy, with the names of gguf-py's tables."""
import glob
import json
import os
import re
import struct

import gguf
import numpy as np

ARCHITECTURES = {"qwen3_5": "QWEN35", "qwen3_5_moe": "QWEN35MOE", "qwen3_next": "QWEN3NEXT", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE",
                 "qwen2": "QWEN2", "llama": "LLAMA", "gemma3": "GEMMA3"}


def tensors_of(folder):
    """name -> floats of a folder's tensors."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        for name, t in header.items():
            if name == "__metadata__":
                continue
            begin, end = t["data_offsets"]
            v = np.frombuffer(data[begin:end], {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}[t["dtype"]])
            v = (v.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else v.astype(np.float32)
            found[name] = v.reshape(t["shape"])
    return found


def config_of(folder):
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    return {**c, **c.get("text_config", {})}


def permuted(v, heads):
    """Rows i and i + half of a head are neighbours."""
    return v.reshape(heads, 2, v.shape[0] // heads // 2, *v.shape[1:]).swapaxes(1, 2).reshape(v.shape)


def tiled(v, axis, c, size):
    """Value heads are in turn."""
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = list(v.shape)
    v = v.reshape(*shape[:axis], keys, values // keys, size, *shape[axis + 1:])
    return np.swapaxes(v, axis, axis + 1).reshape(shape)


def interleaved(v, c):
    """Qwen3-Next's in_proj_qkvz: by key head q, k, v, z."""
    keys, r = c["linear_num_key_heads"], c["linear_num_value_heads"] // c["linear_num_key_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    q, k, values, z = np.split(v.reshape(keys, -1, v.shape[-1]), np.cumsum([dk, dk, r * dv]), axis=1)
    flat = [x.reshape(-1, v.shape[-1]) for x in (q, k, values, z)]
    return np.concatenate(flat[:3]), flat[3]


def converted(folder, tensors=None):
    """Yields name and floats of the tensors of the folder's GGUF file. tensors: what stands in the place of tensors_of(folder)."""
    c = config_of(folder)
    kind = c["model_type"].removesuffix("_text")
    arch = getattr(gguf.MODEL_ARCH, ARCHITECTURES[kind])
    table = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    hybrid = kind in ("qwen3_5", "qwen3_5_moe", "qwen3_next")
    experts = {}

    def named(name):
        found = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found, name
        return found

    for name, v in (tensors or tensors_of(folder)).items():
        name = re.sub(r"^(model\.language_model\.|language_model\.model\.)", "model.", name)
        name = re.sub(r"^(model\.)?language_model\.lm_head", "lm_head", name)
        if "mtp." in name or "visual." in name or "inv_freq" in name or "vision_tower" in name or "projector" in name:
            continue
        if name == "lm_head.weight" and c.get("tie_word_embeddings"):
            continue
        part = name.rsplit("linear_attn.", 1)[-1]
        if part != name and kind != "qwen3_next":
            dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
            first = 2 * dk * c["linear_num_key_heads"]
            if part == "in_proj_qkv.weight":
                v = np.concatenate([v[:first], tiled(v[first:], 0, c, dv)])
            elif part == "conv1d.weight":
                v = np.concatenate([v[:first], tiled(v[first:], 0, c, dv)])
            elif part == "in_proj_z.weight":
                v = tiled(v, 0, c, dv)
            elif part in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias"):
                v = tiled(v, 0, c, 1)
            elif part == "out_proj.weight":
                v = tiled(v, 1, c, dv)
        if part == "A_log":
            v = -np.exp(v)
        elif part == "dt_bias":
            yield re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.ssm_dt.bias", name), v
            continue
        elif part == "conv1d.weight":
            v = v[:, 0]
        elif (hybrid or kind == "gemma3") and name.endswith("norm.weight") and part != "norm.weight":
            v = v + np.float32(1)
        if kind == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            v = permuted(v, c["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        if part == "in_proj_qkvz.weight":
            block = name.split(".")[2]
            qkv, z = interleaved(v, c)
            yield f"blk.{block}.attn_qkv.weight", qkv
            yield f"blk.{block}.attn_gate.weight", z
        elif name.endswith("experts.gate_up_proj"):
            gate, up = np.split(v, 2, axis=1)
            yield named(name.replace("gate_up_proj", "gate_proj.weight")), gate
            yield named(name.replace("gate_up_proj", "up_proj.weight")), up
        elif name.endswith("experts.down_proj"):
            yield named(name + ".weight"), v
        elif m := re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name):
            experts.setdefault(f"{m[1]}.{m[3]}.weight", {})[int(m[2])] = v
        elif name.endswith("shared_expert_gate.weight"):
            yield named(name), v[0]
        else:
            yield named(name), v
    for name, rows in experts.items():
        yield named(name), np.stack([rows[i] for i in range(len(rows))])
    if kind == "llama" and (c.get("rope_scaling") or c.get("rope_parameters") or {}).get("rope_type") == "llama3":
        yield "rope_freqs.weight", None


def with_numbers_of(folder, path):
    """name -> floats of the folder's tensors, whose matrices have the numbers of the GGUF file that was made of it."""
    tensors, stored = tensors_of(folder), {t.name: t for t in gguf.GGUFReader(path).tensors}
    # What goes through the converter are the places of numbers, so it says where each number of the file came from.
    ends = np.cumsum([v.size for v in tensors.values()])
    places = {name: np.arange(end - v.size, end, dtype=np.float64).reshape(v.shape) for end, (name, v) in zip(ends, tensors.items())}
    flat = np.concatenate([v.ravel() for v in tensors.values()])
    with np.errstate(over="ignore"):  # in exp
        found = list(converted(folder, places))
    for name, place in found:
        if place is None or place.ndim == 1 or "conv1d" in name:  # no matrix
            continue
        t = stored[name]
        flat[place.astype(np.int64).ravel()] = gguf.quants.dequantize(t.data, t.tensor_type).ravel()
    return {name: v.reshape(tensors[name].shape) for name, v in zip(tensors, np.split(flat, ends[:-1]))}
