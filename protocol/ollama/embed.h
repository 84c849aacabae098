/* The answers of /api/embed and of the older /api/embeddings:
 *
 *     {"model","embeddings":[[0.1,…],…],"total_duration","load_duration","prompt_eval_count"}     /api/embed
 *     {"embedding":[0.1,…]}                                                                       /api/embeddings
 *
 * The vectors are those of /v1/embeddings (protocol/openai/embeddings.h), of norm 1 at both paths. A request without
 * text has no vectors: its list is empty. Durations are in nanoseconds (answer.h). */
#pragma once

#include "protocol/ollama/answer.h"

/* The body of /api/embed: its beginning, one element for each vector, and its end. index: counts from 0. sum:
 * [dimensions] finite floats. model: the name that the request has. */
void ollama_embed_begin(const char *model, struct buf *out);
void ollama_embed_vector(uint32_t index, const float *sum, uint32_t dimensions, struct buf *out);
void ollama_embed_end(const struct openai_usage *u, const struct ollama_times *t, struct buf *out);

/* The body of /api/embeddings, the whole of it. */
void ollama_embedding(const float *sum, uint32_t dimensions, struct buf *out);

/* The bodies without a vector. */
void ollama_embed_nothing(const char *model, struct buf *out);
void ollama_embedding_nothing(struct buf *out);
