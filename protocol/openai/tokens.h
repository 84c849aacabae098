/* Tokens with their log-probabilities: one by one, and as a list that keeps many of them in few bytes.
 *
 * The log-probabilities of a long prompt are kept until the answer is written, and the client may read it slowly. So a
 * list has 20 bytes for each token, and 8 for each token that is listed beside it. A list is read from its beginning to
 * its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "scheduler/plan.h"

/* A generated or echoed token with its log-probabilities. `cut` bytes at its end do not belong to the text (a stop
 * string began inside it; a special token has no text). */
struct openai_token {
	struct draw_result draw;
	uint32_t cut;
	bool first; /* first token of a prompt: it has no log-probability (null) */
	bool last;  /* last token of an echoed prompt: no later token completes its bytes */
};

struct openai_tokens {
	struct buf bytes;
	size_t n;
};

/* Makes *t an empty list. Allocates nothing. */
void openai_tokens_init(struct openai_tokens *t);
void openai_tokens_release(struct openai_tokens *t);

/* Returns the bytes that a list has for a token with n_top tokens listed beside it. */
size_t openai_tokens_size(uint32_t n_top);

/* Empties the list and keeps its memory. */
void openai_tokens_clear(struct openai_tokens *t);

/* Makes room for n more tokens with n_top tokens listed beside each. -ENOMEM. */
int openai_tokens_reserve(struct openai_tokens *t, size_t n, uint32_t n_top) MUST_CHECK;

/* Appends a copy of *token. -ENOMEM. */
int openai_tokens_add(struct openai_tokens *t, const struct openai_token *token) MUST_CHECK;

/* Reads the token at *at, which is 0 for the first one, into *ret, and moves *at to the next. Of the lists draw.top_ids
 * and draw.top_logprobs only draw.n_top elements are set. False: there is no further token, and nothing was set. */
bool openai_tokens_next(const struct openai_tokens *t, size_t *at, struct openai_token *ret);
