/* One choice of an answer: its tokens become content, reasoning, tool calls and log-probabilities.
 *
 *     token ──> detokenizer ──text──> tool calls ──rest──> reasoning splitter ──> content | reasoning   (chat)
 *                     └──────text──────────────────────────────────────────────> content               (completions)
 *
 * Calls are looked for if the request has tools and the model's format is known, in reasoning as well as behind it,
 * because models forget </think>. So a complete call that the model only considers within its reasoning is a call, too.
 * A tag of reasoning in a call's arguments is none. Stop strings count in calls, too.
 *
 * A choice that the model has ended has the finish reason "tool_calls" if it has calls and none of them was cut
 * (tools.h), and also one that ended with its first call because the request wants only one.
 *
 * Log-probabilities are reported for the tokens of the content, each together with the text that has its last byte. So
 * a token waits in `tokens` until all have passed on its bytes, or the choice has ended. A token of which no byte
 * became content (reasoning, calls, tags, a stop string and the text behind it) is dropped, unless every_token is set
 * and the token has no bytes. Of other tokens the bytes behind the content are left out; bytes before it, of a call
 * behind which text follows in the same token, are not.
 *
 * The *raw bytes* of a choice are the bytes of its tokens, one token after the other. Special tokens, but for the
 * marks of the calls' format, and the end token add none. Places of tokens are counted in raw bytes. */
#pragma once

#include "base/ids.h"
#include "protocol/openai/response.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/output/reasoning.h"
#include "protocol/output/tools.h"
#include "scheduler/scheduler.h"

/* The place in the raw bytes of a token whose log-probabilities are to be reported. */
struct choice_place {
	size_t begin, end;
	size_t content; /* number of the token's bytes that became content; 1 for a token without bytes */
	size_t content_end; /* where the last of these bytes ends; 0: it has none */
};

/* Settings that are the same for all choices of an answer. */
struct choice_config {
	const struct tokenizer *tokenizer; /* borrowed, as are the stops */
	const struct stops *stops;	   /* NULL: none */
	bool reasoning;			   /* the reasoning is split off from the content */
	bool thinking; /* the prompt ended in an open think block: the answer begins with reasoning */
	bool constrained; /* the answer has a constraint (output/steering.h): reasoning at its start alone */
	const struct tools_format *format; /* of tool calls; NULL: none are looked for */
	struct tool_list tools;		   /* borrowed, as are the marks */
	const int32_t *marks; /* [n_marks] special tokens that the format needs as text */
	size_t n_marks;
	bool one_call; /* the choice ends with its first call */
	bool logprobs, token_ids;
	bool include_stop; /* the text includes a stop string, or the token, that ends it */
	/* [n_model_ends] borrowed: end tokens of the model. Any other token that ends the choice is its stop_token. */
	const int32_t *model_ends;
	size_t n_model_ends;
	bool every_token; /* with echo: the log-probabilities of tokens without bytes are reported, too */
};

struct choice {
	const struct choice_config *config; /* borrowed */
	struct detokenizer *detokenizer;
	struct tools *tools; /* NULL: tool calls are not looked for */
	struct reasoning splitter;
	struct buf piece; /* text from the detokenizer, on its way to the splitter or the content */

	/* Results. Texts, ids and ready tokens grow until choice_clear empties them. */
	struct buf content, reasoning;
	struct openai_calls calls;
	struct openai_runs runs; /* the order of all that is in these three */
	struct ids token_ids;
	struct openai_tokens ready; /* tokens that can be reported now */
	const char *finish; /* "stop", "length", "tool_calls"; NULL: the choice has not ended */
	const char *stop;   /* the stop string that ended the choice; NULL: none did */
	int32_t stop_token; /* the token of the request's stop_token_ids that ended it; -1: none did */
	uint32_t n_drawn, n_reasoning; /* tokens drawn so far; of these, tokens of reasoning */
	double logprob; /* the sum of the log-probabilities of the tokens drawn so far, where draws report them */

	struct openai_token *tokens; /* [n_tokens] tokens that wait until they can be reported */
	struct choice_place *places; /* [n_tokens] their places */
	size_t n_tokens, cap;
	size_t at;  /* the number of the token to which content was counted last */
	size_t raw; /* number of raw bytes of the tokens so far */
	/* with log-probabilities, in raw bytes: the ends of the text that tool calls are looked for in, and of the
	 * rest, which has passed on to the splitter */
	size_t looked, passed;
};

int choice_init(struct choice *c, const struct choice_config *config) MUST_CHECK;
void choice_release(struct choice *c);

/* Takes a drawn token; sets c->finish if the choice ends with it. 1: a stop string or the only call ended the choice,
 * and the engine thread must be told, because it would go on (`finish` is FINISH_NONE). 0: any other end, or none.
 * -ENOMEM. Not to be called after c->finish was set. */
int choice_push(struct choice *c, const struct draw_result *draw,
		enum finish_reason finish) MUST_CHECK;

/* Removes the results that were sent: texts, ids, and tokens that were ready. Text that is held back, and tokens that
 * wait for it, stay. */
void choice_clear(struct choice *c);

/* Returns the bytes of memory that the results take, and text and tokens that wait. choice_clear gives none of it
 * back. */
size_t choice_bytes(const struct choice *c);
