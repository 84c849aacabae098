#include "engine/store/key.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <string.h>

enum {
	BATCH = 256, /* tokens converted to little endian at a time */
	DIGEST = 32,
};

static void take_key(gnutls_hash_hd_t h, struct content_key *ret)
{
	uint8_t digest[DIGEST];

	gnutls_hash_output(h, digest); /* this also resets h for the next page */
	memcpy(ret, digest, CONTENT_KEY_BYTES);
}

static int add_tokens(gnutls_hash_hd_t h, const int32_t *tokens, uint32_t n)
{
	uint32_t batch[BATCH];

	for (uint32_t done = 0; done < n; done += BATCH) {
		uint32_t m = MIN(n - done, (uint32_t)BATCH);

		for (uint32_t i = 0; i < m; i++)
			batch[i] = htole32((uint32_t)tokens[done + i]);
		if (gnutls_hash(h, batch, m * sizeof(*batch)) < 0)
			return -EFAULT;
	}
	return 0;
}

int content_key_root(const uint64_t space[2], struct content_key *ret)
{
	const uint64_t id[2] = {htole64(space[0]), htole64(space[1])};
	uint8_t digest[DIGEST];

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, id, sizeof(id), digest) < 0)
		return -EFAULT;
	memcpy(ret, digest, CONTENT_KEY_BYTES);
	return 0;
}

int content_key_chain(const struct content_key *root, const int32_t *tokens, uint32_t n_tokens,
		      uint32_t page_tokens, struct content_key *ret)
{
	struct content_key key = *root;
	gnutls_hash_hd_t h;
	int r = 0;

	if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
		return -EFAULT;
	for (uint32_t i = 0; i < n_tokens / page_tokens && r == 0; i++) {
		if (gnutls_hash(h, &key, sizeof(key)) < 0)
			r = -EFAULT;
		if (r == 0)
			r = add_tokens(h, tokens + (size_t)i * page_tokens, page_tokens);
		if (r == 0) {
			take_key(h, &key);
			ret[i] = key;
		}
	}
	gnutls_hash_deinit(h, NULL);
	return r;
}

int content_key_next(const struct content_key *before, const int32_t *tokens, uint32_t n_tokens,
		     struct content_key *ret)
{
	struct content_key key;
	int r = n_tokens ? content_key_chain(before, tokens, n_tokens, n_tokens, &key) : -EFAULT;

	if (r == 0)
		*ret = key;
	return r;
}
