/*
 * A client's request: the bodies of /v1/chat/completions and /v1/completions as one struct.
 *
 * Parsing checks types and ranges and names the parameter at fault. null is absent, unknown fields
 * are ignored; a known one that would change the answer and that this server does not have
 * (logit_bias, JSON formats, beam search, ...) is refused, never passed over.
 *
 * Chat messages are normalised as templates expect them:
 *  - `developer` becomes system, and every system message joins the first one, which is put in
 *    front (Qwen's templates raise on a later one); empty ones add nothing, "\n\n" stands between;
 *  - null or absent content becomes "";
 *  - an array of text parts becomes their text, one after another: some templates (Qwen3-Next)
 *    know only strings and drop an array, those that know both print the same for both;
 *  - tool_calls[].function.arguments given as JSON text of an object becomes that object;
 *  - `reasoning` is another name for `reasoning_content`;
 *  - members that answers of this and other servers have (refusal, annotations, null audio and
 *    function_call) are accepted and left out.
 *
 * Thinking is off unless asked for. The first of these that is given decides:
 * chat_template_kwargs.enable_thinking, enable_thinking, reasoning_effort ("none": off).
 *
 * Use: a body arrives -> openai_parse_* in the text thread -> template_render(context) or
 * prompts[] -> tokenizer -> scheduler_request. Give the arena room for three times the body. The
 * context is no longer needed once it was rendered; openai_request_release drops it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/macros.h"
#include "scheduler/plan.h"

enum {
	STOPS_MAX = 4,
	STOP_BYTES_MAX = 1024, /* of one stop string: every choice has a table of its size */
	STOP_TOKEN_IDS_MAX = 256,
	CACHE_SALT_MAX = 1024, /* bytes */
	PROMPTS_MAX = 1024,    /* prompts of one completion request */
};

/* Limits of the server that a body is checked against. */
struct openai_limits {
	uint32_t vocab_size;
	uint32_t max_choices;	  /* largest n */
	struct sampling defaults; /* the model's generation_config.json */
};

/* One prompt of a completion request: text, or ids. Neither is empty. */
struct openai_prompt {
	const char *text; /* NULL when ids were given */
	size_t text_len;
	const int32_t *ids;
	size_t n_ids;
};

struct openai_request {
	const char *model;  /* NULL: absent */
	const char *source; /* the parameter that the prompts are from: "messages" or "prompt" */
	/* chat */
	json_t *context; /* owned; NULL in completions: messages, tools and documents (null when there are none),
			    add_generation_prompt, enable_thinking, reasoning_effort when given, and
			    the members of chat_template_kwargs, ready for template_render */
	bool thinking; /* the prompt will end inside an open <think> */
	/* completions */
	struct openai_prompt *prompts; /* [n_prompts] in the arena */
	size_t n_prompts;
	bool echo; /* the answer begins with the prompt, and its log-probabilities likewise */
	bool prompt_only; /* max_tokens 0, only with echo: the one token that is drawn (max_tokens is 1) is not shown */
	bool add_special_tokens; /* around prompts that are texts: true unless refused */

	struct sampling sampling; /* defaults filled in; a seed is drawn by the daemon if has_seed
				     is false */
	/* vLLM's prompt_logprobs, and how many of the best it names; never in a stream. */
	bool prompt_logprobs;
	uint32_t n_prompt_logprobs;
	bool has_seed;
	uint32_t max_tokens; /* 0: as many as fit */
	uint32_t min_tokens, n;
	bool ignore_eos;
	const int32_t *stop_token_ids;
	size_t n_stop_token_ids;
	const char *stops[STOPS_MAX]; /* 1 to STOP_BYTES_MAX bytes each */
	size_t n_stops;
	bool stream, include_usage;
	bool return_token_ids;

	int32_t priority;  /* lower first; 0 when absent */
	bool cache_prompt; /* false: neither takes from the prefix cache nor leaves anything there
			    */
	const char *cache_salt; /* [cache_salt_len], may hold any bytes; NULL: none */
	size_t cache_salt_len;
};

/* Log-probabilities of the prompt's tokens are needed, by echo or prompt_logprobs; *ret_n: beside how many of the
 * best. */
static inline bool openai_wants_scores(const struct openai_request *r, uint32_t *ret_n)
{
	bool echoed = r->echo && r->sampling.want_logprobs;

	*ret_n = MAX(echoed ? (uint32_t)r->sampling.n_logprobs : 0,
		     r->prompt_logprobs ? r->n_prompt_logprobs : 0);
	return echoed || r->prompt_logprobs;
}

/* Parses a body. Strings live in the arena. Errors (see errors.h; all name their param):
 * -EINVAL, -PROBLEM_UNSUPPORTED; -ENOMEM. On failure *ret is untouched and there is nothing to release. */
int openai_parse_chat(const char *body, size_t len, const struct openai_limits *limits,
		      struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;
int openai_parse_completion(const char *body, size_t len, const struct openai_limits *limits,
			    struct arena *arena, struct openai_request *ret,
			    struct err *e) MUST_CHECK;
void openai_request_release(struct openai_request *r);
