/* The keys of a GGUF file for a model of another format, with the names and values of llama.cpp's converter: the way
 * back of gguf_texts.h. */
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/formats/gguf_write.h"
#include "engine/checkpoint/model_config.h"

/* Adds the keys of a model's configuration and its sampling defaults. name: general.name. -ENOTSUP: GGUF files
 * cannot say what the configuration says; the sentence names the key. Other errors are those of reading the texts. */
int gguf_keys_of_config(const struct checkpoint *k, const struct model_config *c, const char *name,
			struct gguf_keys *out, struct err *e) MUST_CHECK;

/* Adds the vocabulary with its merges and special tokens, and the chat template. -ENOENT, and nothing is added: the
 * model has no tokenizer. -ENOTSUP: its tokenizer is of a kind that has no name in GGUF files, or none that is
 * known. -EINVAL: a text is wrong. -ENOMEM. */
int gguf_keys_of_tokenizer(const struct checkpoint *k, const struct model_config *c,
			   struct gguf_keys *out, struct err *e) MUST_CHECK;
