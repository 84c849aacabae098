/* The `options` of a request, which say how tokens are drawn, as members of a chat's body.
 *
 *     option                                              member
 *     temperature, top_p, top_k, min_p, seed, stop,       the same
 *     presence_penalty, frequency_penalty
 *     repeat_penalty                                      repetition_penalty
 *     num_predict                                         max_tokens; 0 and below: as many as fit
 *
 * A seed below 0 is none. With repeat_last_n 0 there are no penalties; any other number has no effect, because
 * penalties are about the whole text. typical_p, tfs_z and mirostat are refused, unless their values have no effect.
 * All other options are passed over: they are about memory and speed (num_ctx, num_batch, num_gpu, num_thread,
 * use_mmap, ...), whose settings are the server's, or are unknown. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/macros.h"

/* Adds the options of a body to a chat's. Their types and ranges are checked when the chat is read. -EINVAL,
 * -PROBLEM_UNSUPPORTED, -ENOMEM. */
int ollama_options_convert(const json_t *body, json_t *chat, struct err *e) MUST_CHECK;

/* Replaces the name of a chat's member, which an error is about, by the name of the option or member that it was made
 * of, in param and sentence. */
void ollama_options_name(struct err *e);
