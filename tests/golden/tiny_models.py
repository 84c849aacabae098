#!/usr/bin/env python3
"""Thirty-one random tiny checkpoints and the answers of transformers with them in float32.

usage: tiny_models.py OUT_DIR [NAME ...]

Each directory gets config.json, safetensors and golden.json:

    {"name", "what", "noise", "cases": [{"prompt_ids", "output_ids",
        "steps": [{"ids" [5], "logprobs" [5], "margin"}], "recompute_diff"}]}

Greedy, natural logarithms; `margin` is the first over the second. Prompts go through the chunked
form of Gated DeltaNet, generated tokens through the recurrent one with a cache, as a server does it.
`recompute_diff` is the largest change of a listed log-probability when the whole text is computed in
one pass without a cache, `noise` the largest change of one when everything that transformers does
not force into float32 is computed in float64: both are far below the tolerance of a test, or the
seed is rejected, since a random router may stand on an edge.

Sizes are odd on purpose. The weights are scaled so that every part of a layer matters and the best
token is clear; a fresh transformers model would give nearly uniform logits.
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM,
                          Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3NextConfig,
                          Qwen3NextForCausalLM)

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(2)
FAMILIES = {
    "qwen3_5_moe": (Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM),
    "qwen3_5": (Qwen3_5TextConfig, Qwen3_5ForCausalLM),
    "qwen3_next": (Qwen3NextConfig, Qwen3NextForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
}
PLAIN = {"llama", "qwen2", "qwen3", "qwen3_moe"}  # norms multiply by w, not by 1 + w
TOKENS = 24


def sizes(hidden=40, layers=4, heads=2, kv=1, head=64, keys=1, values=2, dk=64, dv=64, conv=4,
          experts=5, top=2, expert=24, shared=24, vocab=301, mlp=0, **more):
    s = dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
             num_key_value_heads=kv, vocab_size=vocab, max_position_embeddings=1024)
    if head:
        s.update(head_dim=head)
    if keys:
        s.update(linear_num_key_heads=keys, linear_num_value_heads=values, linear_key_head_dim=dk,
                 linear_value_head_dim=dv, linear_conv_kernel_dim=conv)
    if experts:
        s.update(num_experts=experts, num_experts_per_tok=top, moe_intermediate_size=expert)
    if experts and shared:
        s.update(shared_expert_intermediate_size=shared)
    if mlp:
        s.update(intermediate_size=mlp)
    s.update(more)
    return s


L, F, S = "linear_attention", "full_attention", "sliding_attention"
# name, purpose, family, sizes, file: dtype, prefix, packed or per-expert, shards, nested
# config, keys in the older style; prompt lengths
MODELS = [
    ("01-moe", "the plain case: packed experts, flat config", "qwen3_5_moe",
     sizes(hidden=64, heads=4, kv=2, keys=1, values=2, experts=8, vocab=320),
     dict(), (5, 70, 130)),
    ("02-ratio-1", "one value head a key head, tied, one tensor an expert", "qwen3_5_moe",
     sizes(hidden=48, head=128, keys=2, values=2, tie_word_embeddings=True),
     dict(packed=False), (1, 64)),
    ("03-ratio-3", "three value heads a key head, head size 256", "qwen3_5_moe",
     sizes(head=256, keys=2, values=6, experts=7, top=3),
     dict(), (2, 50, 129)),
    ("04-next", "Qwen3-Next: interleaved projections, one tensor an expert", "qwen3_next",
     sizes(hidden=56, heads=4, kv=2, keys=2, values=4, experts=6, intermediate_size=32),
     dict(packed=False), (3, 63, 128)),
    ("05-next-ratio-3", "three value heads of 48, router weights not normalised, f32, three files, "
     "rope and layer kinds in the older keys", "qwen3_next",
     sizes(hidden=40, keys=2, values=6, dk=32, dv=48, norm_topk_prob=False, top=3, vocab=211,
           rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.25)),
     dict(dtype="float32", packed=False, shards=3, old_keys=True), (40, 66)),
    ("06-nested", "beside a vision tower: nested config, model.language_model., tied",
     "qwen3_5_moe", sizes(hidden=48, heads=3, kv=1, tie_word_embeddings=True),
     dict(prefix="model.language_model.", nested=True), (7, 200)),
    ("07-nested-old", "language_model.model. as older versions save it, f16", "qwen3_5_moe",
     sizes(hidden=40, head=128, heads=2, kv=2),
     dict(prefix="language_model.model.", head="language_model.lm_head.weight", nested=True,
          dtype="float16", packed=False), (20, 65)),
    ("08-dense", "dense MLP", "qwen3_5",
     sizes(hidden=72, experts=0, mlp=104, heads=4, kv=2, values=3),
     dict(), (10, 64, 100)),
    ("09-dense-nested", "dense MLP, nested, tied, f32", "qwen3_5",
     sizes(hidden=40, experts=0, mlp=88, tie_word_embeddings=True, vocab=157),
     dict(prefix="model.language_model.", nested=True, dtype="float32"), (31, 150)),
    ("10-top-1", "one expert of five, sizes that are no multiple of 16", "qwen3_5_moe",
     sizes(hidden=40, top=1, expert=20, shared=36, vocab=173),
     dict(), (4, 90)),
    ("11-top-6", "six experts of eleven, f32", "qwen3_5_moe",
     sizes(hidden=56, experts=11, top=6, expert=12, shared=20, vocab=131, layers=3,
           layer_types=[L, L, F]),
     dict(dtype="float32"), (55, 127)),
    ("12-conv-3", "a convolution over three tokens", "qwen3_5_moe",
     sizes(hidden=48, conv=3, keys=2, values=2),
     dict(), (1, 62, 67)),
    ("13-conv-2", "over two tokens, Qwen3-Next, packed", "qwen3_next",
     sizes(hidden=40, conv=2, keys=3, values=3, intermediate_size=32),
     dict(), (6, 131)),
    ("14-conv-6", "over six tokens", "qwen3_5_moe",
     sizes(hidden=40, conv=6, keys=1, values=3, vocab=199),
     dict(), (2, 61, 128)),
    ("15-all-heads", "as many key as query heads, rotation of the whole head", "qwen3_5_moe",
     sizes(hidden=48, heads=3, kv=3, rope_parameters=dict(
         rope_type="default", rope_theta=1e7, partial_rotary_factor=1.0, mrope_section=[11, 11, 10],
         mrope_interleaved=True)),
     dict(), (30, 160)),
    ("16-five-heads", "five query heads of 48 a key head, half of the head rotated", "qwen3_5_moe",
     sizes(hidden=56, heads=5, kv=1, head=48, rope_parameters=dict(
         rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
     dict(dtype="float16"), (12, 128)),
    ("17-next-mixed", "Qwen3-Next with dense layers among those with experts, tied", "qwen3_next",
     sizes(hidden=48, layers=6, decoder_sparse_step=2, mlp_only_layers=[3], intermediate_size=60,
           tie_word_embeddings=True, layer_types=[L, F, L, L, L, F]),
     dict(packed=False), (9, 64)),
    ("18-layer-types", "attention first and twice in a row; some tensors f32, the rest bf16",
     "qwen3_5_moe",
     sizes(hidden=40, layers=5, heads=2, kv=1, head=128, layer_types=[F, F, L, L, F]),
     dict(mixed=True), (25, 133)),
    ("19-wide-keys", "key heads of 128 and value heads of 64, f16, two files", "qwen3_5_moe",
     sizes(hidden=40, dk=128, dv=64, keys=2, values=6, expert=40, shared=8),
     dict(dtype="float16", shards=2), (45, 192)),
    ("20-heads-256", "all heads 256 wide", "qwen3_next",
     sizes(hidden=40, layers=3, layer_types=[L, L, F], head=256, dk=256, dv=256, keys=1, values=2,
           top=4, intermediate_size=32),
     dict(packed=False), (16, 96)),
    ("21-qwen3", "every layer attends, without a gate: Qwen3, rope in the older keys", "qwen3",
     sizes(hidden=72, layers=3, experts=0, keys=0, mlp=104, heads=4, kv=2,
           rope_parameters=dict(rope_type="default", rope_theta=1e6)),
     dict(old_keys=True), (10, 64, 130)),
    ("22-qwen3-tied", "Qwen3, tied, three query heads of 32 a key head, f32, two files", "qwen3",
     sizes(experts=0, keys=0, mlp=88, heads=6, kv=2, head=32, vocab=157,
           tie_word_embeddings=True),
     dict(dtype="float32", shards=2), (1, 65, 128)),
    ("23-qwen3-moe", "Qwen3-MoE: experts without a shared one, weights normalised", "qwen3_moe",
     sizes(hidden=72, layers=3, keys=0, shared=0, mlp=104, heads=4, kv=2, experts=9, top=3,
           norm_topk_prob=True),
     dict(packed=False), (10, 64, 130)),
    ("24-qwen3-moe-mixed", "Qwen3-MoE with dense layers among those with experts, weights not "
     "normalised, packed, head size from the hidden size", "qwen3_moe",
     sizes(hidden=96, layers=4, keys=0, shared=0, mlp=60, heads=3, kv=1, head=None, top=2,
           mlp_only_layers=[2], vocab=157),
     dict(dtype="float16"), (1, 65, 128)),
    ("25-llama", "Llama with the rotation of Llama 3, three heads a key head, in the older keys",
     "llama",
     sizes(hidden=72, layers=3, experts=0, keys=0, mlp=104, heads=3, kv=1, head=64,
           rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                                low_freq_factor=1.0, high_freq_factor=4.0,
                                original_max_position_embeddings=64)),
     dict(old_keys=True), (10, 64, 130)),
    ("26-llama-linear", "Llama, heads of 128, all of them key heads, linear scaling, f32",
     "llama",
     sizes(hidden=128, layers=3, experts=0, keys=0, mlp=88, heads=2, kv=2, head=128, vocab=157,
           rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
     dict(dtype="float32"), (1, 65, 128)),
    ("27-qwen2", "Qwen2: biases of queries, keys and values", "qwen2",
     sizes(hidden=96, layers=3, experts=0, keys=0, mlp=104, heads=6, kv=2, head=None),
     dict(), (10, 64, 130)),
    ("28-qwen2-files", "Qwen2 with one key head of 64, f32, two files", "qwen2",
     sizes(hidden=128, layers=3, experts=0, keys=0, mlp=88, heads=2, kv=1, head=None, vocab=157),
     dict(dtype="float32", shards=2), (1, 65, 128)),
    ("29-gemma3", "Gemma 3: a window of 40 tokens in three of four layers, tied", "gemma3",
     sizes(hidden=72, layers=4, layer_types=[S, S, F, S], experts=0, keys=0, mlp=104, heads=4, kv=2, head=64,
           sliding_window=40, query_pre_attn_scalar=48),
     dict(), (10, 64, 130)),
    ("30-gemma3-nested", "beside a vision tower, a window of 64 tokens and linear scaling, in the "
     "older keys, heads of 128", "gemma3",
     sizes(hidden=56, layers=4, experts=0, keys=0, mlp=88, heads=2, kv=1, head=128, vocab=199,
           tie_word_embeddings=False, sliding_window=64, layer_types=[S, F, S, F], rope_parameters=dict(
               sliding_attention=dict(rope_type="default", rope_theta=10000.0),
               full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0))),
     dict(prefix="language_model.model.", nested=True, dtype="float32", old_keys=True),
     (1, 65, 128, 200)),
    ("31-gemma3-window-2", "a window of two tokens, as many key as query heads", "gemma3",
     sizes(hidden=48, layers=3, experts=0, keys=0, mlp=60, heads=3, kv=3, head=32, vocab=131,
           sliding_window=2, layer_types=[F, S, F], tie_word_embeddings=False),
     dict(dtype="float16"), (3, 66)),
]


def initialise(model, generator):
    """Random weights: matrices so that outputs are near `gain` for inputs near 1."""
    def normal(p, std, mean=0.0):
        p.data.copy_(torch.randn(p.shape, generator=generator) * std + mean)

    def uniform(p, low, high):
        p.data.copy_(torch.rand(p.shape, generator=generator) * (high - low) + low)

    hidden = model.config.hidden_size
    tied = model.config.tie_word_embeddings
    plain = model.config.model_type in PLAIN
    bare = model.config.model_type in ("llama", "qwen2")
    gemma = model.config.model_type == "gemma3_text"
    for name, p in model.named_parameters():
        if gemma and name.endswith("embed_tokens.weight"):
            normal(p, 1.0 / hidden ** 0.5)  # the model multiplies them by hidden ** 0.5
        elif gemma and name == "model.norm.weight":
            normal(p, 0.2, 2.5)  # for clear logits of so small a head
        elif gemma and name.endswith(("q_norm.weight", "k_norm.weight")):
            normal(p, 0.2, 0.3)
        elif gemma and name.endswith(("post_attention_layernorm.weight",
                                      "post_feedforward_layernorm.weight")):
            normal(p, 0.2, 1.0)  # so that a token does not only repeat itself
        elif name.endswith("embed_tokens.weight"):
            normal(p, 3.0 / hidden ** 0.5 if tied else 1.0)
        elif name == "lm_head.weight":
            normal(p, (1.0 if gemma else 4.0) / hidden ** 0.5)
        elif name.endswith("A_log"):
            uniform(p, 0.0, 2.5)
        elif name.endswith("dt_bias"):
            uniform(p, -6.0, -1.0)
        elif name.endswith("linear_attn.norm.weight"):
            normal(p, 0.2, 1.0)
        elif plain and name.endswith(("q_norm.weight", "k_norm.weight")):
            normal(p, 0.2, 2.0)  # so that a token attends to few others, not to the mean of all
        elif name.endswith("bias"):
            normal(p, 0.5)
        elif p.dim() == 1:  # norms
            normal(p, 0.2, 1.0 if plain else 0.0)
        elif name.endswith("conv1d.weight"):
            normal(p, 1.0 / p.shape[-1] ** 0.5)
        elif name.endswith("mlp.gate.weight"):
            normal(p, 2.0 / hidden ** 0.5)
        else:
            # Writers into the residual stream are larger where the embedding is also the head, or
            # every token would only repeat itself.
            writes = name.endswith(("out_proj.weight", "o_proj.weight", "down_proj",
                                    "down_proj.weight"))
            # Without norms of queries and keys, these are larger for the same reason as the norms above.
            aims = bare and name.endswith(("q_proj.weight", "k_proj.weight"))
            gain = 1.5 if aims or (writes and tied) else 1.0
            normal(p, gain / p.shape[-1] ** 0.5)


def round_to(model, options):
    """Rounds every parameter to the number format of the file; returns them in that format."""
    stored = {}
    for name, p in model.named_parameters():
        dtype = getattr(torch, options.get("dtype", "bfloat16"))
        if options.get("mixed") and (p.dim() == 1 or "in_proj_z" in name or "k_proj" in name):
            dtype = torch.float32
        stored[name] = p.data.to(dtype)
        p.data.copy_(stored[name].float())
    return stored


def file_names(stored, config, options):
    """The tensors by the names of the checkpoint."""
    prefix = options.get("prefix", "model.")
    out = {}
    for name, t in stored.items():
        if name == "lm_head.weight":
            out[options.get("head", name)] = t
            continue
        name = prefix + name.removeprefix("model.")
        if options.get("packed", True) or ".experts." not in name:
            out[name] = t
            continue
        stem, projection = name.rsplit(".", 1)
        for e in range(t.shape[0]):
            if projection == "down_proj":
                out["%s.%d.down_proj.weight" % (stem, e)] = t[e]
            else:
                half = config.moe_intermediate_size
                out["%s.%d.gate_proj.weight" % (stem, e)] = t[e, :half]
                out["%s.%d.up_proj.weight" % (stem, e)] = t[e, half:]
    if options.get("nested"):  # what a loader of text passes over
        out["model.visual.patch_embed.proj.weight"] = torch.zeros(3, 2)
        out["mtp.fc.weight"] = torch.zeros(2, 4, dtype=torch.bfloat16)
    return {k: v.clone().contiguous() for k, v in out.items()}


def write_config(path, family, config, options):
    text = json.loads(config.to_json_string(use_diff=False))
    keep = set(json.loads(config.to_json_string(use_diff=True))) - {"transformers_version"}
    text = {k: text[k] for k in sorted(keep)}
    text["dtype"] = options.get("dtype", "bfloat16")
    if options.get("old_keys"):
        rope = text.pop("rope_parameters")
        if family == "gemma3":
            text.update(rope_local_base_freq=rope["sliding_attention"]["rope_theta"])
            rope = rope["full_attention"]
        if family != "gemma3" and text.pop("layer_types", None) and family not in PLAIN:
            text.update(full_attention_interval=4)
        text.update(rope_theta=rope["rope_theta"])
        if "partial_rotary_factor" in rope:
            text.update(partial_rotary_factor=rope["partial_rotary_factor"])
        scaling = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor")}
        text.update(rope_scaling=scaling if scaling["rope_type"] != "default" else None)
    if options.get("nested"):
        classes = {"qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
                   "qwen3_5": "Qwen3_5ForConditionalGeneration",
                   "gemma3": "Gemma3ForConditionalGeneration"}
        top = dict(architectures=[classes[family]], model_type=family, text_config=text,
                   tie_word_embeddings=text["tie_word_embeddings"], image_token_id=1,
                   vision_config=dict(depth=1, hidden_size=16, model_type=family + "_vision"))
    else:
        top = dict(text, architectures=[FAMILIES[family][1].__name__])
    with open(path + "/config.json", "w") as f:
        json.dump(top, f, indent=1)
        f.write("\n")


def write_files(path, tensors, shards):
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, path + "/model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for i in range(shards):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, shards)
        part = {n: tensors[n] for n in names[i::shards]}
        weight_map.update({n: file for n in part})
        save_file(part, path + "/" + file, metadata={"format": "pt"})
    with open(path + "/model.safetensors.index.json", "w") as f:
        json.dump(dict(metadata=dict(total_size=sum(t.nbytes for t in tensors.values())),
                       weight_map=weight_map), f, indent=1)


def greedy(model, prompt):
    x, past, output, steps = torch.tensor([prompt]), None, [], []
    for _ in range(TOKENS):
        o = model(input_ids=x, past_key_values=past, use_cache=True)
        past = o.past_key_values
        v, i = torch.log_softmax(o.logits[0, -1].float(), -1).topk(5)
        steps.append(dict(ids=i.tolist(), logprobs=[round(t, 6) for t in v.tolist()],
                          margin=round(float(v[0] - v[1]), 6)))
        output.append(int(i[0]))
        x = torch.tensor([[output[-1]]])
    return output, steps


def recompute(model, prompt, output, steps):
    """The largest change of a listed log-probability in one pass over the whole text."""
    o = model(input_ids=torch.tensor([prompt + output[:-1]]), use_cache=False)
    full = torch.log_softmax(o.logits[0, len(prompt) - 1:].double(), -1)
    return max(abs(float(full[k, i]) - v) for k, s in enumerate(steps)
               for i, v in zip(s["ids"], s["logprobs"]))


def answers(model, prompts, most=3e-5, least=0.01, different=8):
    """Cases of a golden.json, their noise, whether they are good, and why: noise of `most`, margins from `least` on, and as many
    different tokens in each answer."""
    cases, noise = [], 0.0
    with torch.no_grad():
        for prompt in prompts:
            output, steps = greedy(model, prompt)
            diff = recompute(model, prompt, output, steps)
            cases.append(dict(prompt_ids=prompt, output_ids=output, steps=steps,
                              recompute_diff=float("%.2g" % diff)))
        model.double()
        for case in cases:
            noise = max(noise, recompute(model, case["prompt_ids"], case["output_ids"],
                                         case["steps"]))
    margins = sorted(s["margin"] for c in cases for s in c["steps"])
    kinds = min(len(set(c["output_ids"])) for c in cases)
    diff = max(c["recompute_diff"] for c in cases)
    told = "recompute %.1e noise %.1e margins: least %.3f, %d of %d below 0.05; tokens %d" % (
        diff, noise, margins[0], sum(m < 0.05 for m in margins), len(margins), kinds)
    return cases, noise, max(diff, noise) <= most and margins[0] >= least and kinds >= different, told


def make(out, seed, name, what, family, size, options, lengths):
    """Writes one model; returns False when this seed is no good, and says why."""
    config_class, model_class = FAMILIES[family]
    config = config_class(**size)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config).float().eval()
    model.set_experts_implementation("eager")
    initialise(model, generator)
    stored = round_to(model, options)
    prompts = [torch.randint(0, config.vocab_size, (length,), generator=generator).tolist() for length in lengths]
    cases, noise, good, told = answers(model, prompts)
    told = "seed %d: %s" % (seed, told)
    if not good:
        print(name, "rejected,", told, flush=True)
        return False
    path = os.path.join(out, name)
    os.makedirs(path, exist_ok=True)
    for file in os.listdir(path):
        os.unlink(os.path.join(path, file))
    write_config(path, family, config, options)
    write_files(path, file_names(stored, config, options), options.get("shards", 1))
    with open(path + "/golden.json", "w") as f:
        json.dump(dict(name=name, what=what, transformers=transformers.__version__, seed=seed,
                       noise=float("%.2g" % noise), cases=cases), f, separators=(",", ":"))
        f.write("\n")
    for file in os.listdir(path):
        os.chmod(os.path.join(path, file), 0o644)
    # The files have the numbers of the computation. transformers no longer reads the oldest prefix.
    if not options.get("prefix", "model.").startswith("language_model."):
        again, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                           output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"], info
        mine = dict(model.float().named_parameters())
        for key, p in again.named_parameters():
            assert torch.equal(p, mine[key]), key
        for key in ("layer_types", "num_experts_per_tok", "tie_word_embeddings", "rope_parameters"):
            assert getattr(again.config, key, None) == getattr(config, key, None), key
    print(name, told, flush=True)
    return True


def main():
    out, chosen = sys.argv[1], sys.argv[2:]
    for i, entry in enumerate(MODELS):
        if chosen and entry[0] not in chosen:
            continue
        seed = 1000 * (i + 1)
        while not make(out, seed, *entry):
            seed += 1


if __name__ == "__main__":
    main()
