/* A growable array of token ids, as the tokenizer writes them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct ids {
	int32_t *v; /* owned */
	size_t len, cap;
};

/* Makes room for n more ids, adds one, adds n. 0; or -ENOMEM, and nothing changed. */
int ids_reserve(struct ids *a, size_t n) MUST_CHECK;
int ids_push(struct ids *a, int32_t id) MUST_CHECK;
int ids_append(struct ids *a, const int32_t *v, size_t n) MUST_CHECK;
void ids_release(struct ids *a);
