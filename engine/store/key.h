/*
 * Names for content: a page of tokens in host memory or on disk is named by a chain of hashes. Page i of a prompt,
 * counted from 1, has the key T_i:
 *
 *     T_0 = SHA-256(id of the space)            T_i = SHA-256(T_{i-1} | tokens of page i, int32 little endian)
 *
 * Each T is cut to its first 16 bytes. A page's key stands for a space and all tokens from the beginning of a prompt to
 * the end of the page, so equal keys mean equal prefixes. A state has the key of the page at whose end it is. Prompts
 * may be hostile input: with SHA-256 a client cannot choose a prompt whose key is that of another prompt.
 *
 * Any thread may call these functions. The key of a page of 64 tokens takes about 0.3 us.
 */
#pragma once

#include <stdint.h>

#include "base/macros.h"
#include "prefix_cache/tiers.h"

enum { CONTENT_KEY_BYTES = sizeof(struct content_key) };

/* All return 0, or -EFAULT when the library of hashes fails. */

/* Computes T_0 of a space (struct prefix_space.id). */
int content_key_root(const uint64_t space[2], struct content_key *ret) MUST_CHECK;

/* Computes the key of one more page, which has n_tokens tokens (not 0), behind the page with the key `before`. */
int content_key_next(const struct content_key *before, const int32_t *tokens, uint32_t n_tokens,
		     struct content_key *ret) MUST_CHECK;

/* Computes the keys of all whole pages of a prompt: ret [n_tokens / page_tokens]. root: T_0 of its space. */
int content_key_chain(const struct content_key *root, const int32_t *tokens, uint32_t n_tokens,
		      uint32_t page_tokens, struct content_key *ret) MUST_CHECK;
