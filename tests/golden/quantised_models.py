#!/usr/bin/env python3
"""What transformers makes of lexis when its matrices have the numbers that a quantised file has.

    quantised_models.py TIGON

Needs torch, transformers, safetensors and gguf. TIGON quantises models/lexis; gguf-py's decoders make floats of the file's
blocks, which take the place of the checkpoint's matrices, and transformers computes in float32. Writes
tests/golden/lexis/RECIPE/golden.json, in the form of models/lexis/golden.json, with some of its prompts. A second run writes
the same tokens, and log-probabilities that may have other last digits.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import gguf
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
LEXIS = os.path.join(HERE, "..", "..", "models", "lexis")
RECIPES = ("Q4_K_M", "Q8_0")
CASES = ("define-violin", "define-river", "define-pepper", "json-anchor", "think-compass", "tool-feather", "toolresult-kettle", "codes-6-1",
         "codes-12-2", "system", "unicode", "multiturn")
END = (2, 0)
torch.set_num_threads(2)


def untiled(v, axis, c, size):
    """Value heads that belong to a key head are neighbours again."""
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = list(v.shape)
    v = v.reshape(*shape[:axis], values // keys, keys, size, *shape[axis + 1:])
    return v.transpose(axis, axis + 1).reshape(shape)


def dequantised(path, c):
    """Puts the numbers of the file's matrices in the place of those of lexis."""
    tensors = {}
    for part in glob.glob(os.path.join(LEXIS, "*.safetensors")):
        tensors |= load_file(part)
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN35MOE, c["num_hidden_layers"])
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    changed = 0
    for name in list(tensors):
        if name.startswith("mtp."):
            del tensors[name]
            continue
        tensors[name] = tensors[name].float()
        if tensors[name].dim() != 2:  # a vector, which stays
            continue
        expert = re.search(r"\.experts\.(\d+)\.", name)
        t = stored[table.get_name(name.replace(expert[0], ".experts.") if expert else name, try_suffixes=(".weight", ".bias"))]
        if t.tensor_type == gguf.GGMLQuantizationType.F32:
            continue
        v = torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy())
        v = (v[int(expert[1])] if expert else v).reshape(tensors[name].shape)
        part = name.rpartition("linear_attn.")[2]
        if part == "in_proj_qkv.weight":
            first = 2 * dk * c["linear_num_key_heads"]
            v = torch.cat([v[:first], untiled(v[first:], 0, c, dv)])
        elif part in ("in_proj_z.weight", "out_proj.weight"):
            v = untiled(v, int(part == "out_proj.weight"), c, dv)
        elif part in ("in_proj_a.weight", "in_proj_b.weight"):
            v = untiled(v, 0, c, 1)
        off = float((v - tensors[name]).pow(2).mean() / tensors[name].pow(2).mean())
        assert 0 < off < 0.02, (name, off)
        tensors[name] = v.contiguous()
        changed += 1
    return tensors, changed


@torch.no_grad()
def answer(model, ids, most):
    """The greedy answer's tokens, and of each the five best with their log-probabilities."""
    x, past, out, steps = torch.tensor([ids]), None, [], []
    while len(out) < most and (not out or out[-1] not in END):
        o = model(input_ids=x, past_key_values=past, use_cache=True)
        past = o.past_key_values
        v, i = torch.log_softmax(o.logits[0, -1].float(), -1).topk(5)
        steps.append({"ids": i.tolist(), "logprobs": [round(t, 6) for t in v.tolist()], "margin": round(float(v[0] - v[1]), 6)})
        out.append(int(i[0]))
        x = torch.tensor([[out[-1]]])
    return out, steps


def main():
    with open(os.path.join(LEXIS, "config.json")) as f:
        c = json.load(f)
    c = {**c, **c.get("text_config", {})}
    with open(os.path.join(LEXIS, "golden.json")) as f:
        cases = [x for x in json.load(f)["cases"] if x["name"] in CASES]
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "lexis.gguf")
            subprocess.run([sys.argv[1], "quantize", LEXIS, path, "--type", recipe], check=True, capture_output=True)
            tensors, changed = dequantised(path, c)
            save_file(tensors, os.path.join(scratch, "model.safetensors"), {"format": "pt"})
            shutil.copyfile(os.path.join(LEXIS, "config.json"), os.path.join(scratch, "config.json"))
            model, info = AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, output_loading_info=True)
        assert not any(info.values()), info
        made = []
        for x in cases:
            out, steps = answer(model.eval(), x["prompt_ids"], x.get("max_tokens", 64))
            made.append({"name": x["name"], "prompt_ids": x["prompt_ids"], "output_ids": out, "steps": steps})
        to = os.path.join(HERE, "lexis", recipe)
        os.makedirs(to, exist_ok=True)
        with open(os.path.join(to, "golden.json"), "w") as f:
            json.dump({"name": f"lexis, {recipe}", "cases": made}, f, separators=(",", ":"))
            f.write("\n")
        print(recipe, changed, "matrices;", len(made), "answers,", sum(len(m["output_ids"]) for m in made), "tokens")


main()
