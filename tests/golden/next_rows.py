#!/usr/bin/env python3
"""The order of the rows of Qwen3-Next's interleaved projections, by transformers' own splitting.

usage: next_rows.py > next_rows.h

A projection whose output i is the number i is split by Qwen3NextGatedDeltaNet; its outputs
q | k | v, z, b and a are then the lists of the rows of which they are made.
"""
import torch
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 6, 16, 32
config = Qwen3NextConfig(
    hidden_size=32, num_hidden_layers=1, layer_types=["linear_attention"],
    linear_num_key_heads=KEY_HEADS, linear_num_value_heads=VALUE_HEADS,
    linear_key_head_dim=KEY_DIM, linear_value_head_dim=VALUE_DIM)
layer = Qwen3NextGatedDeltaNet(config, 0)
qkvz = torch.arange(layer.in_proj_qkvz.out_features)[None, None]
ba = torch.arange(layer.in_proj_ba.out_features)[None, None]
q, k, v, z, b, a = layer.fix_query_key_value_ordering(qkvz, ba)


def table(name, rows):
    rows = [str(int(x)) for x in rows.flatten()]
    lines = [", ".join(rows[i:i + 16]) for i in range(0, len(rows), 16)]
    print("static const int %s[] = {\n\t%s,\n};" % (name, ",\n\t".join(lines)))


print("/* Written by tests/golden/next_rows.py: %d key heads of %d, %d value heads of %d. */"
      % (KEY_HEADS, KEY_DIM, VALUE_HEADS, VALUE_DIM))
print("/* clang-format off */")
table("next_qkv_rows", torch.cat([x.flatten() for x in (q, k, v)]))
table("next_z_rows", z)
table("next_b_rows", b)
table("next_a_rows", a)
