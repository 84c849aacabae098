#!/usr/bin/env python3
"""Checks a checkpoint that `tigon export` wrote: transformers must load it whole.

usage: check_export.py DIR

Every tensor of the files must be a parameter of the model and the other way round, and a forward
pass must be sane: prints how the residual stream grows, how logits spread and how many experts of
a layer some random tokens use.
"""
import glob
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

path = sys.argv[1]
model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, output_loading_info=True)
assert not any(info.values()), info
params = dict(model.named_parameters())
seen = set()
for name in glob.glob(path + "/*.safetensors"):
    with safe_open(name, "pt") as f:
        for key in f.keys():
            tensor = f.get_tensor(key)
            assert tensor.dtype == torch.bfloat16, key
            if ".experts." in key and key.endswith(".weight"):  # one by one: packed in the model
                stem, expert, projection = key.rsplit(".", 3)[0:3]
                size = model.config.moe_intermediate_size
                key, rows = {"gate_proj": ("gate_up_proj", slice(0, size)),
                             "up_proj": ("gate_up_proj", slice(size, None)),
                             "down_proj": ("down_proj", slice(None))}[projection]
                key = stem + "." + key
                assert torch.equal(params[key][int(expert), rows], tensor), key
            else:
                assert torch.equal(params[key], tensor), key
            seen.add(key)
left = set(params) - seen
assert not left, left
print(len(seen), "tensors are the model's", sum(p.numel() for p in params.values()), "parameters")

sizes, hooks, experts = [], [], []
for layer in model.model.layers:
    hooks.append(layer.register_forward_hook(lambda m, i, o: sizes.append(float(
        (o[0] if isinstance(o, tuple) else o).float().pow(2).mean().sqrt()))))
    if hasattr(layer.mlp, "gate"):
        layer.mlp.gate.register_forward_hook(lambda m, i, o: experts.append(o[2].unique().numel()))
ids = torch.randint(0, model.config.vocab_size, (1, 100), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    logits = model(ids, use_cache=False).logits.float()[0]
top = logits.log_softmax(-1).topk(2, -1).values
print("residual rms by layer", " ".join("%.2f" % x for x in sizes))
print("experts used by layer", *experts)
print("logits std %.2f, median margin %.2f, best log-probability %.2f" % (
    logits.std(), (top[:, 0] - top[:, 1]).median(), top[:, 0].median()))
