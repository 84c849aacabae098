/* Headers and names of cache files: every byte matters, and nothing that is wrong is taken. */
#include <errno.h>

#include "engine/store/file.h"
#include "tests/store_fixture.h"
#include "tests/tap.h"

enum { LEN = STORE_FILE_FIXED + 4 * ITEM_TOKENS + STORE_FILE_SUM };

static struct cache_identity identity = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};

static void build(const struct item *it, uint8_t *out)
{
	struct store_file_header h = {
		.item = it->item,
		.parent = it->parent,
		.depth = it->depth,
		.n_tokens = it->item.kind == TIER_PAGE ? ITEM_TOKENS : 0,
		.tokens = (int32_t *)(uintptr_t)it->tokens,
		.payload_bytes = item_bytes(it),
		.payload_sum = {9, 8, 7},
	};

	h.item.origin = 0x1234567890abcdef;
	h.item.parent_origin = 42;
	if (store_file_build(&h, &identity, out) < 0)
		abort();
}

/* Parses a copy in memory of its own, so that a sanitizer sees a read beyond its end. */
static int parse(const uint8_t *bytes, size_t len, struct store_file_header *ret, struct err *e)
{
	static int32_t tokens[ITEM_TOKENS];
	uint8_t *copy = malloc(len + !len);
	int r;

	if (!copy)
		abort();
	memcpy(copy, bytes, len);
	r = store_file_parse(copy, len, &identity, tokens, ITEM_TOKENS, ret, e);
	free(copy);
	return r;
}

/* Writes the right checksum to the end of a header of `len` bytes. */
static void seal(uint8_t *bytes, size_t len)
{
	if (store_file_sum(bytes, len - STORE_FILE_SUM, bytes + len - STORE_FILE_SUM) < 0)
		abort();
}

TEST(round_trip)
{
	struct store_file_header h = {0};
	struct err e = {0};
	uint8_t bytes[LEN];
	struct item it;

	item_make(&it, 3, 2, TIER_PAGE);
	build(&it, bytes);
	is_int(store_file_header_bytes(ITEM_TOKENS), LEN, "a header's length");
	is_int(parse(bytes, LEN, &h, &e), 0, "a page's header is read");
	ok(!memcmp(&h.item.key, &it.item.key, 16) && !memcmp(&h.parent, &it.parent, 16) &&
		   h.item.origin == 0x1234567890abcdef && h.item.parent_origin == 42 &&
		   h.item.kind == TIER_PAGE && h.depth == it.depth && h.n_tokens == ITEM_TOKENS &&
		   h.payload_bytes == ITEM_PAGE_BYTES && h.payload_sum[2] == 7 &&
		   !memcmp(h.tokens, it.tokens, sizeof(it.tokens)),
	   "with all its fields");
	item_make(&it, 3, 2, TIER_STATE);
	build(&it, bytes);
	is_int(parse(bytes, store_file_header_bytes(0), &h, &e), 0, "a state's header is read");
	ok(h.item.kind == TIER_STATE && !h.n_tokens, "it has no tokens");
}

TEST(damage)
{
	struct store_file_header h = {.depth = 77};
	struct err e;
	uint8_t bytes[LEN];
	struct item it;

	item_make(&it, 3, 2, TIER_PAGE);
	build(&it, bytes);
	for (size_t len = 0; len < LEN; len++)
		check(parse(bytes, len, &h, &e) == -EBADMSG);
	ok_all("a header that is cut anywhere is refused");
	for (size_t i = 0; i < LEN; i++)
		for (int bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1 << bit);
			e.text[0] = 0;
			check(parse(bytes, LEN, &h, &e) == -EBADMSG && e.text[0]);
			bytes[i] ^= (uint8_t)(1 << bit);
		}
	ok_all("a header with any one bit flipped is refused, with a reason");
	is_int(h.depth, 77, "and nothing was written to the result");
}

/* Headers whose checksum is right, and which are refused for what they say. */
TEST(wrong)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *why;
	} cases[] = {
		{16, 99, "it belongs to another model, device or version of the kernels"},
		{48, 2, "an item of kind 2 is unknown"},
		{48, 1, "a state with 4 tokens that ends at 12 cannot be"},
		{52, 3, "a page with 4 tokens that ends at 3 cannot be"},
		{56, 0, "its key is not that of its tokens"},
		{80, 0, "its key is not that of its tokens"},
		{STORE_FILE_FIXED, 1, "its key is not that of its tokens"},
		{104, 3, "its header is damaged (sizes)"},
		{8, 2, "it has version 2, not 1"},
		{0, 'X', "it is no cache file"},
	};
	struct store_file_header h;
	uint8_t bytes[LEN];
	struct err e;
	struct item it;

	item_make(&it, 3, 2, TIER_PAGE);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		build(&it, bytes);
		bytes[cases[i].at] = cases[i].value;
		seal(bytes, LEN);
		e.text[0] = 0;
		check(parse(bytes, LEN, &h, &e) == -EBADMSG);
		is_str(e.text, cases[i].why, "case %zu", i);
	}
	ok_all("all are refused");
	build(&it, bytes);
	bytes[104] = 0xff;
	bytes[105] = 0xff;
	bytes[106] = 0xff;
	bytes[107] = 0xff;
	is_int(parse(bytes, LEN, &h, &e), -EBADMSG, "four thousand million tokens are refused");
}

TEST(names)
{
	static const char *const bad[] = {
		"",
		".",
		"..",
		"x",
		"00112233445566778899aabbccddeeff-0000000000000001-0000000000000000-00000040",
		"00112233445566778899aabbccddeeff-0000000000000001-0000000000000000-00000040.kv ",
		"00112233445566778899aabbccddeeff-0000000000000001-0000000000000000-00000040.kv.partial",
		"00112233445566778899AABBCCDDEEFF-0000000000000001-0000000000000000-00000040.kv",
		"00112233445566778899aabbccddeef-0000000000000001-0000000000000000-00000040.kv",
		"00112233445566778899aabbccddeeff_0000000000000001-0000000000000000-00000040.kv",
		"00112233445566778899aabbccddeeff-0000000000000001-0000000000000000-00000040.state2",
	};
	char name[STORE_FILE_NAME_MAX];
	struct tier_item item;
	uint32_t depth;

	ok(store_file_parse_name(
		   "00112233445566778899aabbccddeeff-0000000000000001-00000000000000a0-00000040.state",
		   &item, &depth),
	   "a name is read");
	ok(depth == 64 && item.kind == TIER_STATE && item.origin == 1 && item.parent_origin == 0xa0,
	   "with all that it says");
	store_file_name(&item, depth, name);
	is_str(name,
	       "00112233445566778899aabbccddeeff-0000000000000001-00000000000000a0-00000040.state",
	       "and written");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(!store_file_parse_name(bad[i], &item, &depth));
	ok_all("nothing else is a name");
}

TEST_MAIN()
