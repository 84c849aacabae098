/* Pieces that chunks and whole bodies share, for the files of this directory. */
#ifndef PROTOCOL_OPENAI_RESPONSE_INTERNAL_H
#define PROTOCOL_OPENAI_RESPONSE_INTERNAL_H

#include "protocol/openai/response.h"

/* response.c: {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… */
void response_head(const struct openai_head *h, const char *object, struct buf *out);

/* {"prompt_tokens":…} */
void response_usage(const struct openai_usage *u, struct buf *out);

/* ,"token_ids":[…] when asked for. */
void response_token_ids(const struct openai_head *h, const struct openai_delta *d, struct buf *out);

/* logprobs.c: the logprobs object of a choice for d->tokens; d->cursor may be NULL. With
 * d->finish_reason set, bytes that no later token completes become U+FFFD. */
void logprobs_write(const struct openai_head *h, const struct openai_delta *d, struct buf *out);

/* logprobs.c: vLLM's list for a prompt, [null, {"id": {"logprob":…,"rank":…,"decoded_token":…}}, …]. */
void logprobs_write_prompt(const struct openai_head *h, const struct draw_result *prompt, size_t n,
			   struct buf *out);

#endif
