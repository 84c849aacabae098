/* One choice of an answer: its tokens become content, reasoning and log-probabilities.
 *
 *     token ──> detokenizer ──text──> reasoning splitter ──> content | reasoning   (chat)
 *                     └──────text────────────────────────> content               (completions)
 *
 * Log-probabilities are reported for the tokens of the content, each together with the piece of content that
 * completes it. So a token waits in `tokens` until detokenizer and splitter have passed on all of its bytes. It is
 * dropped if none of them became content (reasoning, tags, text behind a stop string). Positions of bytes are counted
 * in the raw bytes: those of all tokens of the choice, one token after the other, special tokens without any. */
#pragma once

#include "base/ids.h"
#include "protocol/openai/response.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/output/reasoning.h"
#include "scheduler/scheduler.h"

/* A token whose log-probabilities are to be reported, and its place in the raw bytes. */
struct choice_place {
	size_t begin, end;
	size_t content; /* number of its bytes that became content */
};

/* Settings that are the same for all choices of an answer. */
struct choice_config {
	const struct tokenizer *tokenizer; /* borrowed, as are the stops */
	const char *const *stops;
	size_t n_stops;
	bool reasoning; /* the reasoning is split off from the content */
	bool thinking;	/* the prompt ended in an open think block */
	bool logprobs, token_ids;
	bool every_token; /* with echo: log-probabilities also of tokens without text are reported */
};

struct choice {
	const struct choice_config *config; /* borrowed */
	struct detokenizer *detokenizer;
	struct reasoning splitter;
	struct buf piece; /* text from the detokenizer, on its way to the splitter */

	/* results: choice_clear empties them, otherwise they grow until the choice ends */
	struct buf content, reasoning;
	struct ids token_ids;
	struct openai_token *tokens; /* [n_tokens], the first n_ready can be reported */
	size_t n_ready;
	const char *finish;	       /* NULL: it has not ended */
	uint32_t n_drawn, n_reasoning; /* tokens drawn; of these, tokens of reasoning */

	struct choice_place *places; /* [n_tokens], of `tokens` */
	size_t n_tokens, cap;
	size_t raw; /* raw bytes of the tokens so far */
};

int choice_init(struct choice *c, const struct choice_config *config) MUST_CHECK;
void choice_release(struct choice *c);

/* Takes the tokens of the echoed prompt, before any other: they are reported first. The caller puts the prompt's text
 * into c->content. -ENOMEM. */
int choice_echo(struct choice *c, const struct openai_token *tokens, size_t n) MUST_CHECK;

/* Takes a drawn token; sets c->finish if the choice ends with it. 1: the choice ended at a stop string, of which the
 * engine thread must be told. 0; -ENOMEM. Not to be called after c->finish was set. */
int choice_push(struct choice *c, const struct draw_result *draw,
		enum finish_reason finish) MUST_CHECK;

/* Empties the results after they were sent. Text that is held back stays. */
void choice_clear(struct choice *c);
