/* The ends of a chat's turns in its prompt. The next request of the same chat, or of another chat with the same
 * system prompt, is likely to begin with the same tokens as this prompt up to such an end, and to go on with others. So
 * the scheduler is asked to keep a state there.
 *
 * A turn ends with an end token of the model's configuration, or with the special token that the chat template writes
 * behind a message. The configuration of a base model often lacks the latter.
 *
 *     template             behind a message
 *     ChatML (Qwen)        <|im_end|>
 *     Llama 3              <|eot_id|> */
#pragma once

#include "protocol/jinja/jinja.h"
#include "protocol/tokenizer/tokenizer.h"

/* The most ends that are reported: few states are worth their memory, and the scheduler looks at each end. */
enum { TURNS_MAX = 256 };

/* Returns the first special token that this template, with these arguments, writes behind a user's message. -1: it writes
 * none, it cannot be rendered for one message, or memory is short. */
int32_t turns_token(const struct template *template, const json_t *arguments,
		    const struct tokenizer *t);

/* Writes the number of tokens up to and including each end token to ret, in rising order, and returns how many it has
 * written. An end token at the very end of the prompt is left out. If there are more than TURNS_MAX, only the first
 * ones, which many chats share, and the last ones, where this chat continues, are kept. */
uint32_t turns_find(const int32_t *prompt, size_t n_prompt, const int32_t *ends, uint32_t n_ends,
		    uint32_t ret[TURNS_MAX]);
