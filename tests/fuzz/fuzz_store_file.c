/* The header of a cache file from an untrusted source. The first byte chooses how much of the rest is made right, so
 * that later checks are reached: nothing, all but the key, or all with the key. From an accepted header the same bytes
 * must be built again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/file.h"
#include "engine/store/key.h"

enum { TOKENS_MAX = 64 };

static const struct cache_identity identity = {{0x11, 0x22, 0x33}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sets magic, lengths, identity and checksum as a writer would, if there is room for them. With `key` sets the key,
 * too. */
static void repair(uint8_t *p, size_t len, bool key)
{
	int32_t tokens[TOKENS_MAX];
	struct content_key parent, next;
	uint32_t n;
	size_t bytes;

	if (len < STORE_FILE_FIXED + STORE_FILE_SUM)
		return;
	memcpy(&n, p + 104, sizeof(n));
	n %= TOKENS_MAX + 2;
	bytes = store_file_header_bytes(n);
	if (len < bytes)
		return;
	memcpy(p + 104, &n, sizeof(n));
	memcpy(p + 12, &(uint32_t){(uint32_t)bytes}, 4);
	memcpy(p, "TIGONKV1\1\0\0\0", 12);
	memcpy(p + 16, identity.bytes, sizeof(identity.bytes));
	memcpy(&parent, p + 80, sizeof(parent));
	if (key && n && n <= TOKENS_MAX) {
		memcpy(tokens, p + STORE_FILE_FIXED, n * sizeof(*tokens));
		if (content_key_next(&parent, tokens, n, &next) == 0)
			memcpy(p + 56, &next, sizeof(next));
	}
	if (store_file_sum(p, bytes - STORE_FILE_SUM, p + bytes - STORE_FILE_SUM) < 0)
		abort();
}

static void check_header(const uint8_t *p, size_t len)
{
	int32_t tokens[TOKENS_MAX];
	struct store_file_header h;
	struct err e = {0};
	uint8_t *again;

	if (store_file_parse(p, len, &identity, tokens, TOKENS_MAX, &h, &e) < 0) {
		assert(e.text[0]);
		return;
	}
	assert(h.n_tokens <= TOKENS_MAX && store_file_header_bytes(h.n_tokens) <= len);
	again = malloc(store_file_header_bytes(h.n_tokens));
	assert(again && store_file_build(&h, &identity, again) == 0);
	/* Bytes 108 to 111 mean nothing: the parser ignores them, a writer makes them zero. */
	assert(!memcmp(again, p, 108) &&
	       !memcmp(again + 112, p + 112, STORE_FILE_FIXED - 112 + 4 * h.n_tokens));
	free(again);
}

static void check_name(const uint8_t *p, size_t len)
{
	char name[STORE_FILE_NAME_MAX * 2], again[STORE_FILE_NAME_MAX];
	struct tier_item item;
	uint32_t depth;

	len = MIN(len, sizeof(name) - 1);
	memcpy(name, p, len);
	name[len] = 0;
	if (!store_file_parse_name(name, &item, &depth))
		return;
	store_file_name(&item, depth, again);
	assert(!strcmp(name, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (!size)
		return 0;
	copy = malloc(size);
	assert(copy);
	memcpy(copy, data + 1, size - 1);
	if (data[0] % 4)
		repair(copy, size - 1, data[0] % 4 > 1);
	check_header(copy, size - 1);
	check_name(copy, size - 1);
	free(copy);
	return 0;
}
