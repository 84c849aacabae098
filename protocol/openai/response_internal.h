/* The differences between chat and completions, for the files of this directory. */
#pragma once

#include "protocol/openai/response.h"

/* The four forms of a choice: in its first chunk of a stream, in a chunk with a piece of text, in the chunk with the
 * finish reason, and in a whole body. */
enum choice_form { CHOICE_FIRST, CHOICE_PIECE, CHOICE_LAST, CHOICE_WHOLE };

struct openai_shape {
	const char *body, *chunk; /* values of "object", such as "chat.completion" */
	bool opens;		  /* a choice has a first chunk even if no token ids are wanted */
	/* Whether prompt_token_ids and prompt_logprobs stand beside the list of choices alone, in a body or a first
	 * chunk. If false they are members of each choice, and prompt_token_ids also stands beside the list in a first
	 * chunk and in a body with one prompt. */
	bool prompt_in_body;
	/* Writes the member with the text: "delta":{…}, "message":{…} or "text":"…". */
	void (*text)(const struct openai_delta *d, enum choice_form form, struct buf *out);
	/* Writes the logprobs object for d->tokens. Incomplete bytes become U+FFFD in the last token of an echoed
	 * prompt and, with d->finish_reason, in the last token of d. */
	void (*logprobs)(const struct openai_head *h, const struct openai_delta *d,
			 struct openai_cursor *c, struct buf *out);
};

/* logprobs.c */
void logprobs_chat(const struct openai_head *h, const struct openai_delta *d,
		   struct openai_cursor *c, struct buf *out);
void logprobs_completion(const struct openai_head *h, const struct openai_delta *d,
			 struct openai_cursor *c, struct buf *out);

/* logprobs.c: writes vLLM's list for a prompt, [null, {"id": {"logprob":…,"rank":…,"decoded_token":…}}, …]. */
void logprobs_write_prompt(const struct openai_head *h, const struct draw_result *prompt, size_t n,
			   struct buf *out);
