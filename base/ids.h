/* A growable array of token ids, as the tokenizer writes them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct ids {
	int32_t *v; /* owned */
	size_t len, cap;
};

/* ids_reserve makes room for n more ids, ids_push adds one, ids_append adds n. -ENOMEM: the ids are unchanged. */
int ids_reserve(struct ids *a, size_t n) MUST_CHECK;
int ids_push(struct ids *a, int32_t id) MUST_CHECK;
int ids_append(struct ids *a, const int32_t *v, size_t n) MUST_CHECK;
void ids_release(struct ids *a);

/* Keeps the last n ids alone, and gives back the memory of the others. Does nothing if there are not more. */
void ids_keep_last(struct ids *a, size_t n);
