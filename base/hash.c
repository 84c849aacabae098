#include "base/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

void hash128_update(struct hash128 *h, const void *data, size_t len)
{
	const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++)
		h->value = (h->value ^ p[i]) * prime;
}

void hash128_text(struct hash128 *h, const char *text)
{
	hash128_update(h, text, strlen(text) + 1);
}

void hash128_hex(const struct hash128 *h, char out[33])
{
	snprintf(out, 33, "%016llx%016llx", (unsigned long long)(uint64_t)(h->value >> 64),
		 (unsigned long long)(uint64_t)h->value);
}
