/* The file of one item: a header, then the payload, which is the bytes of one KV page or one state.
 *
 *     at   size
 *       0     8   "TIGONKV1"
 *       8     4   version, 1
 *      12     4   bytes of the header, with tokens and checksum
 *      16    32   identity (identity.h)
 *      48     4   kind: 0 page, 1 state
 *      52     4   depth: tokens from the beginning of the prompt to the item's end
 *      56    16   key
 *      72     8   origin
 *      80    16   key of the page before
 *      96     8   origin of the page before
 *     104     4   n: number of tokens; 0 for a state
 *     108     4   zero
 *     112     8   bytes of the payload
 *     120    16   SHA-256 of the payload, cut to 16 bytes
 *     136   4 n   the tokens, int32
 *       .    16   SHA-256 of everything above, cut to 16 bytes
 *
 * Numbers are little endian. A file with another version than 1 is refused. When the store is opened, it lists the
 * items on disk by the names of their files, without opening the files. A name is
 *
 *     <key, 32 hex>-<origin, 16>-<origin of the page before, 16>-<depth, 8>.kv or .state
 *
 * The name lacks the key of the page before, so that key is not known for a file that was found at the start. Of a
 * state, the page before is the one before the page at whose end the state is.
 *
 * A header or a name is checked as a whole before any of its fields is handed out. Pure: no system calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/store/identity.h"
#include "prefix_cache/tiers.h"

enum {
	STORE_FILE_FIXED = 136,
	STORE_FILE_SUM = 16,
	STORE_FILE_TOKENS_MAX = 65536,
	STORE_FILE_NAME_MAX = 96, /* with the terminating 0 */
};

struct store_file_header {
	struct tier_item item;
	struct content_key parent; /* key of the page before; of the first page: T_0 of key.h */
	uint32_t depth;		   /* tokens from the prompt's beginning to the item's end */
	uint32_t n_tokens;
	int32_t *tokens; /* [n_tokens] of a page, borrowed */
	uint64_t payload_bytes;
	uint8_t payload_sum[STORE_FILE_SUM];
};

/* Computes the SHA-256 of the data, cut to 16 bytes. -EFAULT when the library of hashes fails. */
int store_file_sum(const void *data, size_t len, uint8_t ret[STORE_FILE_SUM]) MUST_CHECK;

/* Returns the size of a header with n_tokens tokens, in bytes. */
size_t store_file_header_bytes(uint32_t n_tokens);

/* Writes the header to out [store_file_header_bytes(h->n_tokens)]. -EFAULT like store_file_sum. */
int store_file_build(const struct store_file_header *h, const struct cache_identity *identity,
		     uint8_t *out) MUST_CHECK;

/* Checks the first `len` bytes of a file and reads the header from them. A page's tokens go to tokens [tokens_max], and
 * ret->tokens points there. -EBADMSG with the reason: the header is damaged, of another version or identity, or of an
 * unknown kind, it has more than tokens_max tokens, its fields contradict each other, or the key is not that of the
 * page's tokens. -EFAULT like store_file_sum. After an error ret is untouched. */
int store_file_parse(const void *bytes, size_t len, const struct cache_identity *identity,
		     int32_t *tokens, uint32_t tokens_max, struct store_file_header *ret,
		     struct err *e) MUST_CHECK;

/* Writes the name of the item's file. */
void store_file_name(const struct tier_item *item, uint32_t depth, char ret[STORE_FILE_NAME_MAX]);

/* Reads the fields of a file's name. False, and nothing is set: the name does not have exactly the form at the top. */
bool store_file_parse_name(const char *name, struct tier_item *ret, uint32_t *ret_depth);
