#include "engine/store/file.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/store/key.h"

enum { VERSION = 1, DIGEST = 32 };

static const char magic[8] = "TIGONKV1";

/* Positions of the fields, as in the table of file.h. */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_HEADER_BYTES = 12,
	AT_IDENTITY = 16,
	AT_KIND = 48,
	AT_DEPTH = 52,
	AT_KEY = 56,
	AT_ORIGIN = 72,
	AT_PARENT = 80,
	AT_PARENT_ORIGIN = 96,
	AT_N_TOKENS = 104,
	AT_ZERO = 108,
	AT_PAYLOAD_BYTES = 112,
	AT_PAYLOAD_SUM = 120,
	AT_TOKENS = STORE_FILE_FIXED,
};

int store_file_sum(const void *data, size_t len, uint8_t ret[STORE_FILE_SUM])
{
	uint8_t digest[DIGEST];

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, data, len, digest) < 0)
		return -EFAULT;
	memcpy(ret, digest, STORE_FILE_SUM);
	return 0;
}

size_t store_file_header_bytes(uint32_t n_tokens)
{
	return STORE_FILE_FIXED + (size_t)n_tokens * 4 + STORE_FILE_SUM;
}

/* ---- numbers in a file ---- */

static void put32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

/* ---- header ---- */

int store_file_build(const struct store_file_header *h, const struct cache_identity *identity,
		     uint8_t *out)
{
	size_t bytes = store_file_header_bytes(h->n_tokens);

	memcpy(out + AT_MAGIC, magic, sizeof(magic));
	put32(out + AT_VERSION, VERSION);
	put32(out + AT_HEADER_BYTES, (uint32_t)bytes);
	memcpy(out + AT_IDENTITY, identity->bytes, sizeof(identity->bytes));
	put32(out + AT_KIND, h->item.kind);
	put32(out + AT_DEPTH, h->depth);
	memcpy(out + AT_KEY, &h->item.key, CONTENT_KEY_BYTES);
	put64(out + AT_ORIGIN, h->item.origin);
	memcpy(out + AT_PARENT, &h->parent, CONTENT_KEY_BYTES);
	put64(out + AT_PARENT_ORIGIN, h->item.parent_origin);
	put32(out + AT_N_TOKENS, h->n_tokens);
	put32(out + AT_ZERO, 0);
	put64(out + AT_PAYLOAD_BYTES, h->payload_bytes);
	memcpy(out + AT_PAYLOAD_SUM, h->payload_sum, STORE_FILE_SUM);
	for (uint32_t i = 0; i < h->n_tokens; i++)
		put32(out + AT_TOKENS + (size_t)i * 4, (uint32_t)h->tokens[i]);
	return store_file_sum(out, bytes - STORE_FILE_SUM, out + bytes - STORE_FILE_SUM);
}

/* Checks magic, version, sizes, checksum and identity, before any other field is read. Returns the number of tokens, or
 * a negative error. */
static int check_frame(const uint8_t *p, size_t len, const struct cache_identity *identity,
		       uint32_t tokens_max, struct err *e)
{
	uint8_t sum[STORE_FILE_SUM];
	uint32_t n;
	size_t bytes;

	if (len < store_file_header_bytes(0))
		return err_set(e, EBADMSG, "%zu bytes are too few for a header", len);
	if (memcmp(p, magic, sizeof(magic)))
		return err_set(e, EBADMSG, "it is no cache file");
	if (get32(p + AT_VERSION) != VERSION)
		return err_set(e, EBADMSG, "it has version %u, not %d", get32(p + AT_VERSION),
			       VERSION);
	n = get32(p + AT_N_TOKENS);
	bytes = store_file_header_bytes(n);
	if (n > STORE_FILE_TOKENS_MAX || get32(p + AT_HEADER_BYTES) != bytes)
		return err_set(e, EBADMSG, "its header is damaged (sizes)");
	if (n > tokens_max)
		return err_set(e, EBADMSG, "a page has %u tokens, not %u", n, tokens_max);
	if (len < bytes)
		return err_set(e, EBADMSG, "%zu bytes are too few for its header of %zu", len,
			       bytes);
	if (store_file_sum(p, bytes - STORE_FILE_SUM, sum) < 0)
		return err_set(e, EFAULT, "cannot compute a checksum");
	if (memcmp(p + bytes - STORE_FILE_SUM, sum, STORE_FILE_SUM))
		return err_set(e, EBADMSG, "its header is damaged (checksum)");
	if (memcmp(p + AT_IDENTITY, identity->bytes, sizeof(identity->bytes)))
		return err_set(e, EBADMSG,
			       "it belongs to another model, device or version of the kernels");
	return (int)n;
}

/* Checks that the fields fit together. Even a header with a right checksum can fail this check. */
static int check_fields(const struct store_file_header *h, const int32_t *tokens, struct err *e)
{
	struct content_key key;
	int r;

	if ((h->item.kind == TIER_PAGE) != (h->n_tokens > 0) || h->depth < h->n_tokens)
		return err_set(e, EBADMSG, "a %s with %u tokens that ends at %u cannot be",
			       h->item.kind == TIER_PAGE ? "page" : "state", h->n_tokens, h->depth);
	if (h->item.kind == TIER_STATE)
		return 0;
	r = content_key_next(&h->parent, tokens, h->n_tokens, &key);
	if (r < 0)
		return err_set(e, -r, "cannot compute a key");
	if (memcmp(&key, &h->item.key, sizeof(key)))
		return err_set(e, EBADMSG, "its key is not that of its tokens");
	return 0;
}

int store_file_parse(const void *bytes, size_t len, const struct cache_identity *identity,
		     int32_t *tokens, uint32_t tokens_max, struct store_file_header *ret,
		     struct err *e)
{
	const uint8_t *p = bytes;
	struct store_file_header h = {0};
	int r = check_frame(p, len, identity, tokens_max, e);

	if (r < 0)
		return r;
	h.n_tokens = (uint32_t)r;
	for (uint32_t i = 0; i < h.n_tokens; i++)
		tokens[i] = (int32_t)get32(p + AT_TOKENS + (size_t)i * 4);
	h.tokens = tokens;
	h.item.kind = get32(p + AT_KIND) == TIER_PAGE ? TIER_PAGE : TIER_STATE;
	if (get32(p + AT_KIND) > TIER_STATE)
		return err_set(e, EBADMSG, "an item of kind %u is unknown", get32(p + AT_KIND));
	h.depth = get32(p + AT_DEPTH);
	memcpy(&h.item.key, p + AT_KEY, CONTENT_KEY_BYTES);
	h.item.origin = get64(p + AT_ORIGIN);
	memcpy(&h.parent, p + AT_PARENT, CONTENT_KEY_BYTES);
	h.item.parent_origin = get64(p + AT_PARENT_ORIGIN);
	h.payload_bytes = get64(p + AT_PAYLOAD_BYTES);
	memcpy(h.payload_sum, p + AT_PAYLOAD_SUM, STORE_FILE_SUM);
	r = check_fields(&h, tokens, e);
	if (r == 0)
		*ret = h;
	return r;
}

/* ---- names ---- */

static const char *suffix_of(enum tier_kind kind)
{
	return kind == TIER_PAGE ? ".kv" : ".state";
}

void store_file_name(const struct tier_item *item, uint32_t depth, char ret[STORE_FILE_NAME_MAX])
{
	uint8_t key[CONTENT_KEY_BYTES];
	char hex[2 * CONTENT_KEY_BYTES + 1];

	memcpy(key, &item->key, sizeof(key));
	for (size_t i = 0; i < sizeof(key); i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	snprintf(ret, STORE_FILE_NAME_MAX, "%s-%016" PRIx64 "-%016" PRIx64 "-%08x%s", hex,
		 item->origin, item->parent_origin, depth, suffix_of(item->kind));
}

/* Reads n hex digits, lower case. Returns the position behind them; NULL: there are fewer, or p is NULL. */
static const char *parse_hex(const char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;

	if (!p)
		return NULL;
	for (size_t i = 0; i < n; i++, p++) {
		if (*p >= '0' && *p <= '9')
			v = v << 4 | (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			v = v << 4 | (uint64_t)(*p - 'a' + 10);
		else
			return NULL;
	}
	*ret = v;
	return p;
}

static const char *parse_dash(const char *p)
{
	return p && *p == '-' ? p + 1 : NULL;
}

bool store_file_parse_name(const char *name, struct tier_item *ret, uint32_t *ret_depth)
{
	uint8_t key[CONTENT_KEY_BYTES];
	struct tier_item item = {0};
	uint64_t v = 0;
	const char *p = name;

	for (size_t i = 0; i < sizeof(key); i++) {
		p = parse_hex(p, 2, &v);
		key[i] = (uint8_t)v;
	}
	p = parse_hex(parse_dash(p), 16, &item.origin);
	p = parse_hex(parse_dash(p), 16, &item.parent_origin);
	p = parse_hex(parse_dash(p), 8, &v);
	if (!p)
		return false;
	if (!strcmp(p, suffix_of(TIER_PAGE)))
		item.kind = TIER_PAGE;
	else if (!strcmp(p, suffix_of(TIER_STATE)))
		item.kind = TIER_STATE;
	else
		return false;
	memcpy(&item.key, key, sizeof(key));
	*ret = item;
	*ret_depth = (uint32_t)v;
	return true;
}
