/* A client's request: the bodies of /v1/chat/completions and /v1/completions as one struct. The bodies of other APIs
 * that draw tokens become this struct, too (protocol/anthropic/, protocol/responses/, protocol/ollama/), as do those
 * that draw none (embeddings.h, scores.h).
 *
 * Parsing checks types and ranges and names the parameter at fault. null counts as absent, and unknown members are
 * ignored. A known member that would change the answer and that this server does not support (beam search, a template
 * of the client's, ...) is refused, unless its value has no effect.
 *
 * Chat messages are normalised to the form that templates expect:
 *  - `developer` means system. The texts of all system messages, joined by "\n\n" and without the empty ones, become
 *    one system message, the first of all messages: some of Qwen's templates raise an exception at a system message
 *    further on. A line with which one of them begins, and which has an agent's billing data, is dropped: it changes
 *    with each request, so it would keep every prompt from being found in the prefix cache;
 *  - `function`, the older name of a tool's role, means tool;
 *  - null or absent content becomes "";
 *  - an array of text parts becomes one string, their texts one after another: some templates (Qwen3-Next) drop an
 *    array, and those that take arrays print the same for both forms. In an assistant's message a refusal part counts
 *    as text, and the texts of thinking parts become its reasoning_content;
 *  - tool_calls[].function.arguments: JSON text of an object becomes the object, absent or "" becomes {}, other text
 *    stays text, which some templates refuse;
 *  - `reasoning` is another name for `reasoning_content`; if both are given, reasoning_content counts; either counts
 *    more than thinking parts;
 *  - members that answers of this and other servers have (refusal, annotations, null audio and function_call) are
 *    accepted and left out.
 *
 * Thinking is off unless the request turns it on. The first of these that is given decides:
 * chat_template_kwargs.enable_thinking, enable_thinking, reasoning_effort ("none": off).
 *
 * Use: a body arrives -> openai_parse_* in a text thread -> template_render(context) or prompts[] -> tokenizer ->
 * scheduler_request. The arena needs room for three times the body and 64 KiB. The context is not needed any more when
 * it has been rendered; openai_request_release frees it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/pace.h"
#include "base/macros.h"
#include "protocol/output/tools.h"
#include "scheduler/plan.h"

struct buf;
struct grammar;
struct responses_request;

enum {
	STOPS_MAX = 64,
	/* bytes of one stop string; a call has tables with an entry for each byte of its stop strings (stops.h) */
	STOP_BYTES_MAX = 1024,
	STOP_TOKEN_IDS_MAX = 256,
	CACHE_SALT_MAX = 1024, /* bytes */
	MODEL_NAME_MAX = 1024, /* bytes */
	BAD_WORDS_MAX = 256,
	BAD_WORD_BYTES_MAX = 256,
	BIAS_MAX = 100,	    /* the largest value of logit_bias */
	PROMPTS_MAX = 1024, /* prompts of one request */
	INPUTS_MAX = 2048,  /* those of a TASK_EMBED, as in OpenAI's API */
	KEEP_FITTING = -1,  /* a value of keep_tokens */
};

/* The values that the server adds to a body: limits, defaults, and a way to earlier responses. */
struct openai_limits {
	uint32_t vocab_size, hidden_size;
	uint32_t max_model_len;	  /* tokens of prompt and answer together */
	enum pooling pooling;	  /* of vectors: unless the request says otherwise */
	uint32_t max_choices;	  /* largest n */
	struct sampling defaults; /* for absent parameters: the model's generation_config.json */
	const struct tools_format *tools; /* of the model's calls; NULL: it is not known */
	/* arguments of the chat template that chat_template_kwargs and other members of the body override; borrowed;
	 * NULL: none */
	const json_t *template_arguments;
	/* responses: appends the items of an earlier response's conversation as JSON, with commas between.
	 * -PROBLEM_UNKNOWN_PREVIOUS; -ENOMEM; or another error, which the parser returns. NULL: there are no earlier
	 * responses. */
	int (*recall)(void *arg, const char *id, struct buf *out, struct err *e);
	void *recall_arg;
};

enum openai_tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED };

/* One prompt of a request without chat: a text or a list of ids, not empty. */
struct openai_prompt {
	const char *text; /* NULL when ids were given */
	size_t text_len;
	struct ids ids; /* owned */
	/* TASK_SCORE: the text that goes on from it, not empty */
	const char *behind;
	size_t behind_len;
};

/* The results that are wanted of each prompt. */
enum openai_task {
	TASK_GENERATE, /* answers */
	TASK_EMBED,    /* a vector of its hidden states (embeddings.h) */
	TASK_SCORE,    /* how likely the text behind it is (scores.h) */
};

struct openai_request {
	const char *model;  /* NULL: absent */
	const char *source; /* name of the parameter with the prompts: "messages", "prompt", ... */
	size_t n_listed;    /* elements of that parameter, if it is a list of prompts; else 0 */
	/* Other tasks than TASK_GENERATE have prompt_only and draw nothing. Of the rest they have prompts, n and
	 * best_of (1), priority, and the members about special tokens and the cache. */
	enum openai_task task;
	struct {
		enum pooling pooling;
		uint32_t dimensions; /* numbers of a vector, from the first on */
		bool base64;	     /* the vector is text, base64 of its floats */
	} embed;
	struct {
		/* as source and n_listed, for the texts behind the prompts */
		const char *source;
		size_t n_listed;
		/* a text between a prompt and the text behind it; NULL: none */
		const char *between;
		/* so many results are listed, the best first; 0: all, in the prompts' order */
		uint32_t top;
		bool plain; /* the answer is the list of results alone (scores.h) */
	} score;
	/* chat */
	/* owned; NULL in completions. The object for template_render: messages; tools and documents, null if there
	 * are none; add_generation_prompt; enable_thinking; reasoning_effort if given; the members of
	 * chat_template_kwargs and of limits.template_arguments; and continue_final_message if the last message is left
	 * open (open_message.h) */
	json_t *context;
	/* thinking and add_generation_prompt are on: the prompt then counts as ending inside an open <think> block,
	 * because templates end it so. Or the last message is left open inside such a block. */
	bool thinking;
	bool billing; /* the system prompt began with a billing line (above) */
	/* text in the arena with which the answer begins: it is the prompt's end; NULL: none. Chat does not fill it. */
	const char *prefill;
	size_t prefill_len;
	/* in the arena: the tools that the model may call, in the order of the context's. With tool_choice "none" there
	 * are none, and with allowed_tools some, though the prompt has all. */
	struct tool_list tools;
	enum openai_tool_choice tool_choice;
	const char *only_tool; /* the tool that tool_choice names, one of `tools`; NULL: any */
	/* parallel_tool_calls is false, or tool_choice names a tool: the answer ends with its first call */
	bool one_call;
	/* oldest messages may be left out until the prompt fits (openai_truncate) */
	bool truncate;
	/* in the arena: the members that /v1/responses adds (protocol/responses/request.h); NULL: another API */
	const struct responses_request *responses;
	/* Ollama's API: the request has no prompt, and asks that the model be loaded ("load") or unloaded ("unload").
	 * No token is drawn, and the endpoint's `reply` answers. NULL: another request */
	const char *errand;
	/* completions */
	struct openai_prompt *prompts; /* [n_prompts] in the arena */
	size_t n_prompts;
	json_t *texts; /* the JSON that has the prompts' texts; owned; NULL: the prompts are ids */
	bool echo;     /* the answer, and its log-probabilities, begin with the prompt */
	/* nothing is drawn: the body has max_tokens 0, or the task draws nothing. The member max_tokens is 0 then */
	bool prompt_only;
	/* truncate_prompt_tokens: the last so many tokens of each prompt are kept; 0: all of them; KEEP_FITTING: as
	 * many as fit into the context, beside max_tokens in TASK_GENERATE. TASK_SCORE has 0 */
	int32_t keep_tokens;
	/* add special tokens around prompts that are texts; true by default */
	bool add_special_tokens;

	/* with the defaults of absent parameters; without has_seed the daemon draws a seed */
	struct sampling sampling;
	/* prompt_logprobs: vLLM's parameter is given, which is refused together with stream. n_prompt_logprobs: its
	 * value, the number of best tokens to list beside each token of the prompt. */
	bool prompt_logprobs;
	uint32_t n_prompt_logprobs;
	bool has_seed;
	/* 0: none with prompt_only; else it is absent, and as many as fit into the context and the KV cache */
	uint32_t max_tokens;
	bool clamp; /* if fewer than max_tokens fit, as many as fit are enough */
	/* Anthropic's API: edits of the conversation are asked for. The answer says that none was made. */
	bool wants_edits;
	uint32_t min_tokens;
	/* Choices that are drawn of each prompt: best_of. Choices in the answer: n. If there are fewer of these, they
	 * are the likeliest, by the mean log-probability of their tokens; then the answer is no stream. */
	uint32_t best_of, n;
	bool ignore_eos;
	struct ids stop_token_ids;    /* owned */
	const char *stops[STOPS_MAX]; /* 1 to STOP_BYTES_MAX bytes each */
	size_t n_stops;
	/* include_stop_str_in_output: the answer includes the stop string, or the token, that ends it */
	bool include_stop;
	bool stream, include_usage;
	bool continuous_usage; /* vLLM's continuous_usage_stats: every chunk has the usage so far */
	bool return_token_ids;
	bool tokens_as_ids; /* return_tokens_as_token_ids: log-probabilities name tokens by their ids */

	/* The grammar of the answer, owned: of a constraint of its text, of calls, or of both. NULL: any text */
	struct grammar *grammar;
	/* in the arena: the name of the parameter with the constraint of the text, of which a request has at most one;
	 * NULL: there is none */
	const char *constraint;
	bool no_calls;		  /* the text has a constraint that has no calls */
	struct plan_bias *biases; /* [n_biases] in the arena: logit_bias, by rising token */
	uint32_t n_biases;
	struct ids allowed; /* allowed_token_ids, owned; none: every token may be drawn */
	struct openai_word {
		const char *text;
		size_t len;
	} * bad_words; /* [n_bad_words] in the arena: not empty */
	size_t n_bad_words;

	int32_t priority; /* lower first; 0 when absent */
	/* false: the request takes nothing from the prefix cache and leaves nothing there */
	bool cache_prompt;
	const char *cache_salt; /* [cache_salt_len], may hold any bytes; NULL: none */
	size_t cache_salt_len;
};

/* Returns whether echo or prompt_logprobs needs log-probabilities of the prompt's tokens. *ret_n: the number of best
 * tokens to list beside each. */
static inline bool openai_wants_scores(const struct openai_request *r, uint32_t *ret_n)
{
	bool echoed = r->echo && r->sampling.want_logprobs;

	*ret_n = MAX(echoed ? (uint32_t)r->sampling.n_logprobs : 0,
		     r->prompt_logprobs ? r->n_prompt_logprobs : 0);
	return echoed || r->prompt_logprobs;
}

/* Writes the name of prompt i, or of the text behind it (TASK_SCORE), in the body: "messages", "input[3]", "text_2". */
void openai_prompt_name(const struct openai_request *r, size_t i, bool behind,
			char ret[ERR_PARAM_MAX]);

/* Reads template arguments of the operator (openai_limits.template_arguments), *new*, from JSON. name: of the option,
 * for errors. -EINVAL: they are no object, or one that chat_template_kwargs may not be. -ENOMEM. */
int openai_template_arguments(const char *text, const char *name, json_t **ret,
			      struct err *e) MUST_CHECK;

/* Parse a body. Texts of the body are copied into the arena, except those of context and prompts: these are not copied,
 * since they can be as long as the body, and are there until openai_request_release, as are lists of ids. -EINVAL and
 * -PROBLEM_UNSUPPORTED name the param at fault, unless the body as a whole is wrong; -ECANCELED: pace_gives_up (pace
 * NULL: never); -ENOMEM. On failure *ret is unchanged and there is nothing to release. */
int openai_parse_chat(const char *body, size_t len, const struct pace *pace,
		      const struct openai_limits *limits, struct arena *arena,
		      struct openai_request *ret, struct err *e) MUST_CHECK;
int openai_parse_completion(const char *body, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e) MUST_CHECK;

/* Says whether the prompt of a context fits. 0: it does; -PROBLEM_CONTEXT_LENGTH: it does not; any other error. */
typedef int openai_fits(void *arg, struct err *e);

/* Leaves out the oldest messages of a chat's context but for the system's until it fits: in steps of an eighth of those
 * left, or more, up to the next message of the user. If one message of the user is left, leaves out the oldest answers
 * behind it, each with the outputs of its calls. `fits` is called with `arg` and with the messages in their place: two
 * times if no step makes it fit, else about as often as the number of steps has binary digits. The last call is about
 * the messages that stay, and its error is returned. -ENOMEM. */
int openai_truncate(json_t *context, openai_fits *fits, void *arg, struct err *e) MUST_CHECK;

/* Frees what is owned. A second call does nothing. */
void openai_request_release(struct openai_request *r);
