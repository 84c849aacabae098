/* Appends the bodies of /v1/models and /v1/models/{id} in Anthropic's shape, and that of /v1/messages/count_tokens. */
#pragma once

#include "protocol/openai/models.h"

/* anthropic_body_models appends {"data":[…],"has_more":false,…}, anthropic_body_model one object of such a list.
 * n is at least 1. */
void anthropic_body_models(const struct openai_model *models, size_t n, struct buf *out);
void anthropic_body_model(const struct openai_model *m, struct buf *out);

/* {"input_tokens":12} */
void anthropic_body_count(size_t n_tokens, struct buf *out);
