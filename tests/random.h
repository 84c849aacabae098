/* Random numbers and texts for tests: the same in every run, given the seed. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mix.h"

static uint64_t random_state = 1;

/* Returns a number from 0 to n - 1. */
__attribute__((unused)) static uint32_t random_below(size_t n)
{
	return (uint32_t)((mix_next(&random_state) >> 11) % n);
}

/* Writes up to n_max random pieces, one behind the other, to out. size: the bytes of out, one of which is for the 0 at
 * the end. Returns the length of the text. */
__attribute__((unused)) static size_t random_pieces(const char *const *pieces, size_t n_pieces,
						    size_t n_max, char *out, size_t size)
{
	size_t n = random_below(n_max + 1), len = 0;

	while (n-- > 0) {
		const char *p = pieces[random_below(n_pieces)];
		size_t k = strlen(p);

		if (len + k >= size)
			break;
		memcpy(out + len, p, k);
		len += k;
	}
	out[len] = 0;
	return len;
}
