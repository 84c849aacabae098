/* A client's request in the shape of Ollama's API. A body of /api/chat or /api/generate is rewritten as one of
 * /v1/chat/completions, or with `raw` as one of /v1/completions, and then read by the same functions
 * (protocol/openai/request.h), so that equal chats have equal prompts, and share a cached prefix.
 *
 *  - `stream` is true unless the body says false.
 *  - A message's `thinking` becomes reasoning_content, its `tool_name` name, and its role is read in lower case.
 *    `images` are refused. A last message of the assistant with text alone is no turn: the answer goes on with that
 *    text. It needs thinking to be off.
 *  - /api/generate: `prompt` becomes the user's message and `system` the system's. With `raw` the prompt is the text
 *    that the model gets, without template. `suffix`, `template`, `context` and `images` are refused by name; answers
 *    have no `context`.
 *  - `options` (options.h) say how tokens are drawn. If fewer than num_predict tokens fit behind the prompt, as many as
 *    fit are enough (`clamp`), and if the prompt itself does not fit, the oldest messages are left out, unless
 *    `truncate` is false.
 *  - `format` "json" or a JSON schema is response_format.
 *  - `think` true or false is the template's enable_thinking, and "low", "medium", "high" or "max" its
 *    reasoning_effort. Without it thinking is off.
 *  - No messages, or an empty prompt, asks that the model be loaded, and with a keep_alive of 0 that it be unloaded
 *    (`errand`). Otherwise keep_alive is checked and has no effect: the model is always loaded.
 *
 * Of the members of /v1/chat/completions, those that are about the cache, the queue and the template (`taken` in
 * request.c) have the same meaning here.
 *
 * A body of /api/embed has `input`, a text or a list of texts (or, not of this API, token ids), and one of the older
 * /api/embeddings has `prompt`, a text. Either becomes a body of /v1/embeddings with the same `dimensions`, of which 0
 * means all. A text that is longer than the context is cut to its last tokens, unless `truncate` is false. Without
 * text the body is an errand, as above. `options` have no effect. */
#pragma once

#include "protocol/openai/request.h"

/* Parse a body; arguments and errors are those of openai_parse_chat. With `errand` there are neither messages nor
 * prompts. */
int ollama_parse_chat(const char *body, size_t len, const struct pace *pace,
		      const struct openai_limits *limits, struct arena *arena,
		      struct openai_request *ret, struct err *e) MUST_CHECK;
int ollama_parse_generate(const char *body, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_request *ret, struct err *e) MUST_CHECK;
int ollama_parse_embed(const char *body, size_t len, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *ret, struct err *e) MUST_CHECK;
int ollama_parse_embeddings(const char *body, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e) MUST_CHECK;

/* Parses the body of /api/show: the name of a model, in the arena. Errors are those of openai_parse_chat. */
int ollama_parse_show(const char *body, size_t len, const struct pace *pace, struct arena *arena,
		      const char **ret_model, struct err *e) MUST_CHECK;
