/* Declares the functions that read members of a request, for the files of this directory, of protocol/anthropic, of
 * protocol/ollama and of protocol/responses.
 *
 * `body` is the JSON object of the body. Each function fills its members of *r (or *ret), and returns the errors of
 * openai_parse_chat. */
#pragma once

#include "protocol/openai/request.h"

/* The differences between bodies of chat and of completions. */
struct request_kind {
	const char *source;   /* as in struct openai_request */
	bool echo;	      /* echo is supported */
	bool best_of;	      /* best_of may be above n */
	int64_t least_tokens; /* the smallest max_tokens */
	/* another name for the member max_tokens, whose value it overrides; NULL: there is none */
	const char *max_tokens;
	const char *stop; /* the name of the member with stop strings */
	/* the name of the member by which an answer ends with its first call; NULL: none */
	const char *one_call;
	/* Members of an object in the body (NULL: of the body) that say the answer's format as response_format does,
	 * but with the schema beside the type; up to the first without a name */
	struct format_place {
		const char *object, *name;
	} formats[2];
	int (*logprobs)(const json_t *body, struct openai_request *r, struct err *e);
	int (*prompts)(const json_t *body, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e);
};

/* request.c: parses a whole body. */
int request_parse(const char *text, size_t len, const struct pace *pace,
		  const struct request_kind *kind, const struct openai_limits *limits,
		  struct arena *arena, struct openai_request *ret, struct err *e) MUST_CHECK;

/* request.c: the same of a body that is parsed already. */
int request_read(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		 const struct openai_limits *limits, struct arena *arena,
		 struct openai_request *ret, struct err *e) MUST_CHECK;

/* request.c: reads llama.cpp's cache_prompt, vLLM's cache_salt and priority. */
int request_queue_and_cache(const json_t *body, struct arena *arena, struct openai_request *r,
			    struct err *e) MUST_CHECK;

/* request.c: reads vLLM's truncate_prompt_tokens. */
int request_truncation(const json_t *body, const struct openai_limits *limits,
		       struct openai_request *r, struct err *e) MUST_CHECK;

/* request.c: refuses a boolean member that is false. */
int request_always_on(const json_t *body, const char *name, struct err *e) MUST_CHECK;

/* request.c: begins a request of a task that draws nothing: reads the members that such requests share. */
int request_undrawn(const json_t *body, enum openai_task task, struct arena *arena,
		    struct openai_request *r, struct err *e) MUST_CHECK;

/* request.c: parses the whole body of such a request. read: fills it in; r->source is set. */
int request_parse_undrawn(const char *text, size_t len, const struct pace *pace, const char *source,
			  int (*read)(const json_t *body, const struct openai_limits *limits,
				      struct arena *arena, struct openai_request *r, struct err *e),
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e) MUST_CHECK;

/* embeddings.c: fills in a request of TASK_EMBED, whose prompts are the member r->source. */
int embeddings_read(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		    struct openai_request *r, struct err *e) MUST_CHECK;

/* completions.c: reads prompts, a string, [string], [id] or [[id]], from the member r->source. */
int prompt_list(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		struct openai_request *r, struct err *e) MUST_CHECK;

/* completions.c: reads one prompt that is a text, from the value at `path`. */
int prompt_text(const json_t *v, const char *path, struct openai_prompt *ret,
		struct err *e) MUST_CHECK;

/* sampling.c: reads the members that say how tokens are drawn, how many, and when to stop. */
int sampling_parse(const json_t *body, const struct request_kind *kind,
		   const struct openai_limits *limits, struct arena *arena,
		   struct openai_request *r, struct err *e) MUST_CHECK;

/* tools.c: reads tool_choice into tool_choice, only_tool and one_call, and leaves those of `tools` that may be called;
 * after tools_list. */
int tools_choice(const json_t *body, struct arena *arena, struct openai_request *r,
		 struct err *e) MUST_CHECK;

/* constraint.c: reads the parameters that restrict the answer's text, and fills in grammar, constraint and no_calls. To
 * be called when the other members are filled in. */
int constraint_parse(const json_t *body, const struct pace *pace, const struct request_kind *kind,
		     const struct openai_limits *limits, struct arena *arena,
		     struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: makes a template's context of messages, tools and template arguments. *ret, which the caller owns, *thinking
 * and *billing are for the members context, thinking and billing of struct openai_request. */
int chat_context(const json_t *body, const struct openai_limits *limits, json_t **ret,
		 bool *thinking, bool *billing, struct err *e) MUST_CHECK;

/* chat.c: fills the members of a request that are about its messages and tools. For struct request_kind. */
int chat_prompt(const json_t *body, const struct pace *pace, const struct openai_limits *limits,
		struct arena *arena, struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: reads logprobs, which in chat turns log-probabilities on, and top_logprobs. For struct request_kind. */
int chat_logprobs(const json_t *body, struct openai_request *r, struct err *e) MUST_CHECK;

/* completions.c: fills the members of a request that are about its prompts. For struct request_kind. */
int completion_prompts(const json_t *body, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e) MUST_CHECK;

/* chat.c: reads top_logprobs, the number of best tokens to list. It needs log-probabilities (sampling.want_logprobs);
 * `allowed` says in the sentence of an error when they are on. */
int chat_top_logprobs(const json_t *body, const char *allowed, struct openai_request *r,
		      struct err *e) MUST_CHECK;

/* chat.c: reads a reasoning_effort, a member `name` of `object`; `where` as in fields.h. *ret: the member, borrowed,
 * and *thinks whether it turns thinking on; both unchanged if it is absent. */
int chat_effort(const json_t *object, const char *where, const char *name, const json_t **ret,
		bool *thinks, struct err *e) MUST_CHECK;

/* tools.c: reads the name of a function, a member of `object`: *ret is the member itself, borrowed. -EINVAL: it is
 * missing, no string, or empty, or has a NUL. */
int tools_function_name(const json_t *object, const char *where, const json_t **ret,
			struct err *e) MUST_CHECK;

/* tools.c: the calls of a conversation, as far as it was read: `ids` is a JSON object, at first empty.
 * tools_note_call adds the id of a call; NULL and one that no result can name: any later result may be this call's.
 * tools_check_result refuses the result of a tool, with the call's id in its member `name`, if no call before it has
 * this id. A result without an id is taken. */
int tools_note_call(json_t *ids, const json_t *id, struct err *e) MUST_CHECK;
int tools_check_result(const json_t *ids, const json_t *result, const char *where, const char *name,
		       struct err *e) MUST_CHECK;

/* tools.c: checks tools and tool_choice, and sets the context's member "tools"; null: there are none. */
int tools_context(const json_t *body, json_t *context, struct err *e) MUST_CHECK;

/* tools.c: makes a list, in the arena, of a context's tools and of the types of their parameters. Parameters whose
 * schemas are beyond a bound for the whole request count as strings. -ECANCELED: pace_gives_up; -ENOMEM. */
int tools_list(const json_t *context, const struct pace *pace, struct arena *arena,
	       struct tool_list *ret, struct err *e) MUST_CHECK;

/* request.c: has the answer go on with a text; NULL or empty: it begins by itself. It needs thinking to be off, which the
 * parameter `thinking` turns on. */
int request_prefill(const json_t *text, const char *thinking, struct arena *arena,
		    struct openai_request *r, struct err *e) MUST_CHECK;

/* request.c: reads the model's name into the arena; *ret NULL: absent. */
int request_model(const json_t *body, struct arena *arena, const char **ret,
		  struct err *e) MUST_CHECK;
