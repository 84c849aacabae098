/* The bodies of /v1/embeddings. Members as OpenAI has them (input, model, dimensions, encoding_format), of vLLM
 * truncate_prompt_tokens, add_special_tokens, priority and cache_salt, of llama.cpp cache_prompt, and `pooling`: "last"
 * or "mean". vLLM's normalize may be true alone. Others, such as user, have no effect.
 *
 *     {"id", "object": "list", "created", "model", "data": [{"object": "embedding", "index", "embedding"}], "usage"}
 *
 * A vector is made of a sum of hidden states (enum pooling in scheduler/plan.h): its first `dimensions` numbers,
 * divided by their Euclidean norm. So the sum over all tokens gives the vector of their mean. The embedding is a list
 * of numbers or, with encoding_format "base64", the text of the vector's floats, little-endian. */
#pragma once

#include "protocol/openai/request.h"
#include "protocol/openai/response.h"

/* Parses a body, like openai_parse_chat. */
int openai_parse_embeddings(const char *body, size_t len, const struct pace *pace,
			    const struct openai_limits *limits, struct arena *arena,
			    struct openai_request *ret, struct err *e) MUST_CHECK;

/* Write the body: its beginning, one element for each vector, its end. index: counts from 0. sum: [dimensions] finite
 * floats. */
void openai_embeddings_begin(const struct openai_head *h, struct buf *out);
void openai_embedding(uint32_t index, const float *sum, uint32_t dimensions, bool base64,
		      struct buf *out);
void openai_embeddings_end(const struct openai_usage *u, struct buf *out);

/* Writes a vector as a list of numbers. */
void openai_vector(const float *sum, uint32_t dimensions, struct buf *out);
