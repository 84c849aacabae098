/* Appends the small bodies: /v1/models, /v1/models/{id}, /health and /version. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* The served model. Borrowed strings. */
struct openai_model {
	const char *id;		/* the name in requests */
	const char *root;	/* the directory or name from which it was loaded; NULL: the id */
	int64_t created;	/* seconds since 1970: when the daemon began */
	uint32_t max_model_len; /* tokens */
};

/* openai_body_models appends {"object":"list","data":[…]}, openai_body_model one object of such a list. */
void openai_body_models(const struct openai_model *models, size_t n, struct buf *out);
void openai_body_model(const struct openai_model *m, struct buf *out);

/* {"status":"ok"} */
void openai_body_health(struct buf *out);

/* {"version":"0.1.0"} */
void openai_body_version(const char *version, struct buf *out);
