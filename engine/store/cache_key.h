/*
 * Names for content: what pages of tokens are called below the device, in host memory and on disk.
 *
 *     T_0 = SHA-256(id of the space)            T_i = SHA-256(T_{i-1} | tokens of page i, int32 little endian)
 *
 * each cut to its first 16 bytes. A key stands for all tokens from the beginning, so that equal keys are equal
 * prefixes, and nobody can aim at one: prompts are hostile input.
 *
 * Any thread; some 0.3 us a page.
 */
#ifndef ENGINE_STORE_CACHE_KEY_H
#define ENGINE_STORE_CACHE_KEY_H

#include <stdint.h>

#include "base/macros.h"
#include "prefix_cache/tiers.h"

enum { CONTENT_KEY_BYTES = sizeof(struct content_key) };

/* T_0 of a space (struct prefix_space.id). All return 0, or -EFAULT when the library of hashes fails. */
int content_key_root(const uint64_t space[2], struct content_key *ret) MUST_CHECK;

/* The key after one more page. */
int content_key_next(const struct content_key *before, const int32_t *tokens, uint32_t n_tokens,
		     struct content_key *ret) MUST_CHECK;

/* The keys of all whole pages behind `root`: ret [n_tokens / page_tokens]. */
int content_key_chain(const struct content_key *root, const int32_t *tokens, uint32_t n_tokens,
		      uint32_t page_tokens, struct content_key *ret) MUST_CHECK;

#endif
