/*
 * A Hugging Face checkpoint from weights, so that other programs can run the same numbers. What
 * `tigon export` does.
 *
 * The layout is that which transformers, and the servers that follow it, take for a text-only model
 * of the family: names under "model.", flat config.json, tensors as the family's own files have them
 * (families/). Numbers are rounded to bf16, which changes nothing in synthetic weights and bf16
 * checkpoints.
 */
#pragma once

#include "engine/checkpoint/weights.h"

/* Writes bf16 in files of at most shard_bytes (0: 4 GB; a larger tensor gets a file of its own) with
 * an index, and config.json made from config_json, flat and without the MTP head. out_dir is created;
 * -EEXIST when it is there and not empty. */
int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e) MUST_CHECK;
