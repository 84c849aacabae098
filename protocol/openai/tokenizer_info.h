/* tokenizer_config.json for clients and for chat templates: the answer of /tokenizer_info, in the shape of vLLM, and the
 * texts of special tokens. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the members of a tokenizer_config.json, with the special tokens and the longest text, but without the paths
 * of other files; tokenizer_class, which transformers would choose if there is none; and chat_template. config: the
 * file's text, NULL: there is none. template: the chat template's text, NULL: there is none, and no such member is
 * written. -EINVAL: the config is no JSON object, or the template is no UTF-8; -ENOMEM. */
int openai_body_tokenizer_info(const char *config, size_t config_len, const char *template,
			       size_t template_len, struct buf *out, struct err *e) MUST_CHECK;

/* Puts the texts of the special tokens that a tokenizer_config.json names into the arguments of chat templates, as
 * transformers does in every call: bos_token, eos_token and their like, and the members of extra_special_tokens.
 * Arguments that are there stay. config as above. -EINVAL: the config is no JSON object; -ENOMEM. */
int openai_template_tokens(const char *config, size_t config_len, json_t *arguments,
			   struct err *e) MUST_CHECK;
