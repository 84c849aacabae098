/* A client's request: the bodies of /v1/chat/completions and /v1/completions as one struct.
 *
 * Parsing checks types and ranges and names the parameter at fault. null counts as absent, and unknown members are
 * ignored. A known member that would change the answer and that this server does not support (logit_bias, JSON
 * formats, beam search, ...) is refused, never ignored.
 *
 * Chat messages are normalised to the form that templates expect:
 *  - `developer` becomes system, and every system message joins the first one, which is put in
 * front (Qwen's templates raise on a later one); empty ones add nothing, "\n\n" stands between;
 *  - null or absent content becomes "";
 *  - an array of text parts becomes their text, one after another: some templates (Qwen3-Next)
 * know only strings and drop an array, and those that know both print the same for both;
 *  - tool_calls[].function.arguments given as JSON text of an object becomes that object;
 *  - `reasoning` is another name for `reasoning_content`;
 *  - members that answers of this and other servers have (refusal, annotations, null audio and
 * function_call) are accepted and left out.
 *
 * Thinking is off unless the request turns it on. The first of these that is given decides:
 * chat_template_kwargs.enable_thinking, enable_thinking, reasoning_effort ("none": off).
 *
 * Use: a body arrives -> openai_parse_* in the text thread -> template_render(context) or prompts[] -> tokenizer ->
 * scheduler_request. Give the arena room for three times the body. The context is no longer needed once it was
 * rendered; openai_request_release drops it. */
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
	STOP_BYTES_MAX = 1024, /* bytes of one stop string: every choice has a table of this size */
	STOP_TOKEN_IDS_MAX = 256,
	CACHE_SALT_MAX = 1024, /* bytes */
	PROMPTS_MAX = 1024,    /* prompts of one completion request */
};

/* Limits of the server that apply to a body. */
struct openai_limits {
	uint32_t vocab_size;
	uint32_t max_choices;	  /* largest n */
	struct sampling defaults; /* defaults from the model's generation_config.json */
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
	const char *source; /* the parameter with the prompts: "messages" or "prompt" */
	/* chat */
	/* owned; NULL in completions. Ready for template_render: messages, tools and documents (null: there are
	 * none), add_generation_prompt, enable_thinking, reasoning_effort if given, and the members of
	 * chat_template_kwargs */
	json_t *context;
	bool thinking; /* the prompt will end inside an open <think> */
	/* completions */
	struct openai_prompt *prompts; /* [n_prompts] in the arena */
	size_t n_prompts;
	bool echo; /* the answer, and its log-probabilities, begin with the prompt */
	/* max_tokens 0, only with echo: one token is drawn (max_tokens is 1) but not shown */
	bool prompt_only;
	/* add special tokens around prompts that are texts: true unless refused */
	bool add_special_tokens;

	struct sampling sampling; /* defaults filled in; without has_seed the daemon draws a seed */
	/* vLLM's prompt_logprobs, and how many of the best tokens it lists; never in a stream. */
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

	int32_t priority; /* lower first; 0 when absent */
	/* false: the request takes nothing from the prefix cache and leaves nothing there */
	bool cache_prompt;
	const char *cache_salt; /* [cache_salt_len], may hold any bytes; NULL: none */
	size_t cache_salt_len;
};

/* Whether echo or prompt_logprobs need log-probabilities of the prompt's tokens; *ret_n: best tokens listed beside
 * each. */
static inline bool openai_wants_scores(const struct openai_request *r, uint32_t *ret_n)
{
	bool echoed = r->echo && r->sampling.want_logprobs;

	*ret_n = MAX(echoed ? (uint32_t)r->sampling.n_logprobs : 0,
		     r->prompt_logprobs ? r->n_prompt_logprobs : 0);
	return echoed || r->prompt_logprobs;
}

/* Parse a body. Strings live in the arena. Errors (see errors.h; all name their param): -EINVAL,
 * -PROBLEM_UNSUPPORTED; -ENOMEM. On failure *ret is unchanged and there is nothing to release. */
int openai_parse_chat(const char *body, size_t len, const struct openai_limits *limits,
		      struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;
int openai_parse_completion(const char *body, size_t len, const struct openai_limits *limits,
			    struct arena *arena, struct openai_request *ret,
			    struct err *e) MUST_CHECK;
void openai_request_release(struct openai_request *r);
