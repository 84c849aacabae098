/*
 * The file of one item of the cache: a header, then the bytes of one KV page or one state.
 *
 *     at  size
 *      0     8  "TIGONKV1"
 *      8     4  version, 1
 *     12     4  bytes of the header, with tokens and checksum
 *     16    32  identity (cache_identity.h)
 *     48     4  kind: 0 page, 1 state
 *     52     4  depth: tokens from the beginning to the item's end
 *     56    16  key              72   8  history
 *     80    16  parent's key     96   8  parent's history
 *    104     4  number of tokens (a page's; of a state 0), 108  4  zero
 *    112     8  bytes of the payload
 *    120    16  SHA-256 of the payload, cut to 16 bytes
 *    136   4 n  the tokens, int32
 *      .    16  SHA-256 of all of the above, cut to 16 bytes
 *
 * Little endian. The name says what an index needs, so that no file is read to make one:
 *
 *     <key, 32 hex>-<history, 16>-<parent's history, 16>-<depth, 8>.kv or .state
 *
 * Nothing in a file or name is believed before it is checked. Pure: no system calls.
 */
#ifndef ENGINE_STORE_CACHE_FILE_H
#define ENGINE_STORE_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cache_identity.h"
#include "prefix_cache/tiers.h"

enum {
	CACHE_FILE_FIXED = 136,
	CACHE_FILE_SUM = 16,
	CACHE_FILE_TOKENS_MAX = 65536,
	CACHE_FILE_HEADER_MAX = CACHE_FILE_FIXED + 4 * CACHE_FILE_TOKENS_MAX + CACHE_FILE_SUM,
	CACHE_FILE_NAME_MAX = 96, /* with the 0 behind it */
};

struct cache_file_header {
	struct tier_item item;
	struct content_key parent; /* key of the page before; the space's for the first */
	uint32_t depth;		   /* tokens to the item's end */
	uint32_t n_tokens;
	int32_t *tokens; /* [n_tokens] of the page; borrowed when writing; when parsed: see there */
	uint64_t payload_bytes;
	uint8_t payload_sum[CACHE_FILE_SUM];
};

/* Checksum of a payload, or of anything. */
int cache_file_sum(const void *data, size_t len, uint8_t ret[CACHE_FILE_SUM]) MUST_CHECK;

/* Bytes of a header for so many tokens. */
size_t cache_file_header_bytes(uint32_t n_tokens);

/* Writes the header to out [cache_file_header_bytes(h->n_tokens)]. */
int cache_file_build(const struct cache_file_header *h, const struct cache_identity *identity,
		     uint8_t *out) MUST_CHECK;

/* Checks the first `len` bytes of a file and takes the header apart. tokens [tokens_max] gets a page's tokens, and
 * ret->tokens points there. -EBADMSG with the reason: damaged, of another version, of another identity, or a page
 * whose key is not that of its parent and tokens. ret is untouched then. */
int cache_file_parse(const void *bytes, size_t len, const struct cache_identity *identity,
		     int32_t *tokens, uint32_t tokens_max, struct cache_file_header *ret,
		     struct err *e) MUST_CHECK;

void cache_file_name(const struct tier_item *item, uint32_t depth, char ret[CACHE_FILE_NAME_MAX]);

/* Whether this is such a name, to the letter; what it says. */
bool cache_file_parse_name(const char *name, struct tier_item *ret, uint32_t *ret_depth);

#endif
