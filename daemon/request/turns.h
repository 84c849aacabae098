/*
 * Where the turns of a chat end in its prompt: there the next request of the same chat, or another
 * one with the same system prompt, is likely to leave what it shares with this one, so there the
 * scheduler is asked to keep a state.
 *
 * Turns end with the model's end tokens, and with the token that its chat template writes behind a
 * message
 * (<|im_end|>, <|eot_id|>), which a base model's configuration often does not have.
 */
#ifndef DAEMON_REQUEST_TURNS_H
#define DAEMON_REQUEST_TURNS_H

#include "protocol/template.h"
#include "protocol/tokenizer/tokenizer.h"

/* Boundaries of a prompt: a state is only worth its memory at few of them, and the scheduler looks
 * at all. */
enum { TURNS_MAX = 256 };

/* The special token that this template writes behind a user's message; -1 when there is none. */
int32_t turns_token(const struct template *template, const struct tokenizer *t);

/* Writes the token counts just behind the end tokens inside the prompt (not at its very end),
 * rising, to ret [TURNS_MAX] and returns their number. Of more than TURNS_MAX the first ones
 * (shared by many chats) and the last ones (where this chat goes on) are kept. */
uint32_t turns_find(const int32_t *prompt, size_t n_prompt, const int32_t *ends, uint32_t n_ends,
		    uint32_t ret[TURNS_MAX]);

#endif
