/* The answer of /tokenizer_info, in the shape of vLLM. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the members of a tokenizer_config.json, with the special tokens and the longest text, but without the paths
 * of other files; tokenizer_class, which transformers would choose if there is none; and chat_template. config: the
 * file's text, NULL: there is none. template: the chat template's text, NULL: there is none, and no such member is
 * written. -EINVAL: the config is no JSON object, or the template is no UTF-8; -ENOMEM. */
int openai_body_tokenizer_info(const char *config, size_t config_len, const char *template,
			       size_t template_len, struct buf *out, struct err *e) MUST_CHECK;
