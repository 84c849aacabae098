/* Writes weights as a Hugging Face checkpoint, so that other programs can run the same numbers: `tigon export`.
 *
 * The layout is the one of transformers for a text-only model of the family, which other servers read too: names under
 * "model." (but for lm_head.weight), a flat config.json, tensors as the family's own files have them (families/).
 * Numbers are rounded to bf16, which changes no number of synthetic weights and bf16 checkpoints. */
#pragma once

#include "engine/checkpoint/weights.h"

/* Writes bf16 tensors in files of at most shard_bytes of data (0: 4 GiB; a larger tensor gets a file of its own), an
 * index if there are several files, and a config.json. The config.json is made from config_json: it is flat and has no
 * multi-token-prediction head. Creates out_dir, unless it is there and empty. -EEXIST: out_dir is not empty; -EINVAL:
 * config_json is no JSON object, or memory is short; or another errno. */
int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e) MUST_CHECK;
