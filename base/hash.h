/* FNV-1a with 128 bits: the hash stands for some content, such as the source of a cached program. An attacker can make
 * two contents with equal hashes. So if the content may be hostile, compare its bytes, too. */
#pragma once

#include <stddef.h>

struct hash128 {
	unsigned __int128 value;
};

#define HASH128_INIT \
	((struct hash128){((unsigned __int128)0x6c62272e07bb0142ULL << 64) | 0x62b821756295c58dULL})

void hash128_update(struct hash128 *h, const void *data, size_t len);

/* Adds the text and its terminating 0, so that ("ab", "c") and ("a", "bc") differ. */
void hash128_text(struct hash128 *h, const char *text);

/* Writes the hash as 32 hexadecimal digits and a 0. */
void hash128_hex(const struct hash128 *h, char out[33]);
