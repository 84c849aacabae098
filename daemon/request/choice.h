/* One choice of an answer: its tokens become content, reasoning and log-probabilities.
 *
 *     token ──> detokenizer ──text──> reasoning splitter ──> content | reasoning   (chat)
 *                     └──────text────────────────────────> content               (completions)
 *
 * Log-probabilities are reported for the tokens of the content, each together with the text that has its last byte. So
 * a token waits in `tokens` until detokenizer and splitter have passed on all of its bytes, or the choice has ended. A
 * token of which no byte became content (reasoning, tags, a stop string and the text behind it) is dropped, unless
 * every_token is set and the token has no bytes.
 *
 * The *raw bytes* of a choice are the bytes of its tokens, one token after the other. Special tokens and the end token
 * add none. Places of tokens are counted in raw bytes. */
#pragma once

#include "base/ids.h"
#include "protocol/openai/response.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/output/reasoning.h"
#include "scheduler/scheduler.h"

/* The place in the raw bytes of a token whose log-probabilities are to be reported. */
struct choice_place {
	size_t begin, end;
	size_t content; /* number of the token's bytes that became content; 1 for a token without bytes */
};

/* Settings that are the same for all choices of an answer. */
struct choice_config {
	const struct tokenizer *tokenizer; /* borrowed, as are the stops */
	const struct stops *stops;	   /* NULL: none */
	bool reasoning;			   /* the reasoning is split off from the content */
	bool thinking; /* the prompt ended in an open think block: the answer begins with reasoning */
	bool logprobs, token_ids;
	bool every_token; /* with echo: the log-probabilities of tokens without bytes are reported, too */
};

struct choice {
	const struct choice_config *config; /* borrowed */
	struct detokenizer *detokenizer;
	struct reasoning splitter;
	struct buf piece; /* text from the detokenizer, on its way to the splitter or the content */

	/* Results. Texts, ids and ready tokens grow until choice_clear empties them. */
	struct buf content, reasoning;
	struct ids token_ids;
	struct openai_tokens ready;    /* tokens that can be reported now */
	const char *finish;	       /* "stop", "length"; NULL: the choice has not ended */
	uint32_t n_drawn, n_reasoning; /* tokens drawn so far; of these, tokens of reasoning */

	struct openai_token *tokens; /* [n_tokens] tokens that wait until they can be reported */
	struct choice_place *places; /* [n_tokens] their places */
	size_t n_tokens, cap;
	size_t raw; /* number of raw bytes of the tokens so far */
};

int choice_init(struct choice *c, const struct choice_config *config) MUST_CHECK;
void choice_release(struct choice *c);

/* Takes a drawn token; sets c->finish if the choice ends with it. 1: a stop string ended the choice, and the engine
 * thread must be told, because it would go on (`finish` is FINISH_NONE). 0: any other end, or none. -ENOMEM. Not to be
 * called after c->finish was set. */
int choice_push(struct choice *c, const struct draw_result *draw,
		enum finish_reason finish) MUST_CHECK;

/* Removes the results that were sent: texts, ids, and tokens that were ready. Text that is held back, and tokens that
 * wait for it, stay. */
void choice_clear(struct choice *c);

/* Returns the bytes of memory that the results take. choice_clear gives none of it back. */
size_t choice_bytes(const struct choice *c);
