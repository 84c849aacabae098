/* The differences between the shapes of answers, and the items of log-probabilities, for the files of this directory
 * and of those beside it that write answers (protocol/anthropic, protocol/responses, protocol/ollama). */
#pragma once

#include "protocol/openai/response.h"

/* The five forms of a choice: in its first chunk of a stream, in a chunk with a piece of text, in a chunk with a piece
 * of a tool call, in the chunk with the finish reason, and in a whole body. */
enum choice_form { CHOICE_FIRST, CHOICE_PIECE, CHOICE_CALL, CHOICE_LAST, CHOICE_WHOLE };

/* JSON that is written as it stands, and behind it a text that is escaped when it is written. */
struct openai_span {
	const char *json, *text;
	size_t len;
};

enum { SPANS_MAX = 4, LISTS_MAX = 4 };

/* A drawn or echoed token, and the cursor before it. Tokens that are listed beside it begin at the same cursor. */
struct openai_place {
	const struct openai_token *token;
	const struct openai_cursor *before;
	bool last; /* no later token completes the token's bytes */
};

/* A list with an item for each token, such as "token_logprobs". */
struct openai_list {
	const char *before; /* the JSON before its first item */
	void (*item)(const struct openai_head *h, const struct openai_place *at, struct buf *out);
};

struct openai_shape {
	/* Writes all by itself, as openai_write does; the members below are not used then. NULL: response.c writes. */
	bool (*write)(struct openai_output *o, size_t enough, struct buf *out);
	const char *body, *chunk; /* values of "object", such as "chat.completion" */
	bool opens; /* in streams a choice has a first chunk even if no token ids are wanted */
	/* True: prompt_token_ids (in a body and in a first chunk) and prompt_logprobs (in a body) stand only beside the
	 * list of choices. False: they are members of each choice, and prompt_token_ids also stands beside the list in
	 * a first chunk and in a body with one prompt. */
	bool prompt_in_body;
	/* Makes the member with the text, but for `behind_text`: "delta":{…, "message":{… or "text":"…". Returns the
	 * number of spans. */
	size_t (*text)(const struct openai_delta *d, enum choice_form form,
		       struct openai_span *ret);
	const char *behind_text; /* the JSON behind the text, and behind the calls in it */
	/* The object "logprobs": its lists, one behind the other (before NULL: there is no further one), and the JSON
	 * behind them. Each list goes over all tokens, from the same cursor. */
	struct openai_list lists[LISTS_MAX];
	const char *behind_lists;
};

/* logprobs.c: the items of the lists. logprobs_chat_item writes all of a token; the others are for completions. */
void logprobs_chat_item(const struct openai_head *h, const struct openai_place *at,
			struct buf *out);
void logprobs_token(const struct openai_head *h, const struct openai_place *at, struct buf *out);
void logprobs_logprob(const struct openai_head *h, const struct openai_place *at, struct buf *out);
void logprobs_best(const struct openai_head *h, const struct openai_place *at, struct buf *out);
void logprobs_offset(const struct openai_head *h, const struct openai_place *at, struct buf *out);

/* logprobs.c: moves the cursor over the characters that a token completes. last: no later token completes its bytes. */
void logprobs_pass(const struct openai_head *h, const struct openai_token *token, bool last,
		   struct openai_cursor *c);

/* logprobs.c: writes a token's object in vLLM's list for a prompt. It has a member "ID":
 * {"logprob":…,"rank":…,"decoded_token":…} for the token, and one for each of the best tokens that is another one. */
void logprobs_prompt_item(const struct openai_head *h, const struct draw_result *p,
			  struct buf *out);
