/* One choice of an answer: its tokens become content, reasoning and log-probabilities.
 *
 *     token ──> detokenizer ──text──> reasoning splitter ──> content | reasoning   (chat)
 *                     └──────text────────────────────────> content               (completions)
 *
 * Log-probabilities are reported for the tokens of the content, each together with the piece of content that
 * completes it. So a token waits in `tokens` until detokenizer and splitter have passed on all of its bytes. It is
 * dropped if none of them became content (reasoning, tags, text behind a stop string). Bytes are counted as positions
 * in the raw bytes of all tokens. */
#pragma once

#include "base/ids.h"
#include "protocol/openai/response.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/output/reasoning.h"
#include "scheduler/scheduler.h"

/* A token whose log-probabilities are to be reported, and its place in the raw bytes. */
struct choice_place {
	size_t begin, end;
	size_t content; /* its bytes that became content */
};

/* Settings that are the same for all choices of an answer. */
struct choice_config {
	const struct tokenizer *tokenizer; /* borrowed, as are the stops */
	const char *const *stops;
	size_t n_stops;
	bool reasoning; /* the reasoning is split off from the content */
	bool thinking;	/* the prompt ended in an open think block */
	bool logprobs, token_ids;
	bool every_token; /* report log-probabilities also of tokens without text: with an echo */
};

struct choice {
	const struct choice_config *config; /* borrowed */
	struct detokenizer *detokenizer;
	struct reasoning splitter;
	struct buf piece; /* text from the detokenizer, on its way to the splitter */

	/* results: taken by choice_clear, or kept until the end */
	struct buf content, reasoning;
	struct ids token_ids;
	struct openai_token *tokens; /* [n_tokens], the first n_ready can be reported */
	size_t n_ready;
	const char *finish;	       /* NULL: it has not ended */
	uint32_t n_drawn, n_reasoning; /* tokens drawn */

	struct choice_place *places; /* [n_tokens] */
	size_t n_tokens, cap;
	size_t raw; /* bytes of the tokens so far */
};

int choice_init(struct choice *c, const struct choice_config *config) MUST_CHECK;
void choice_release(struct choice *c);

/* Takes the tokens of the echoed prompt, before any other: they are reported first. The caller puts the prompt's text
 * into c->content. -ENOMEM. */
int choice_echo(struct choice *c, const struct openai_token *tokens, size_t n) MUST_CHECK;

/* Takes a token; sets c->finish if the choice ends with it. 1: it ended at a stop string, which the engine thread
 * does not know yet. 0, or -ENOMEM. Not after the finish. */
int choice_push(struct choice *c, const struct draw_result *draw,
		enum finish_reason finish) MUST_CHECK;

/* Empties the results after they were sent. Text that is held back stays. */
void choice_clear(struct choice *c);
