/* The chain of content keys, compared with another implementation of SHA-256. */
#include "engine/store/key.h"
#include "tests/tap.h"

static const char *hex(const struct content_key *k)
{
	static char text[33];
	uint8_t bytes[16];

	memcpy(bytes, k, 16);
	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

int main(void)
{
	const uint64_t none[2] = {0}, salted[2] = {1, 2};
	struct content_key root, other, chain[5], key;
	int32_t tokens[5 * 300];

	/* the first half of Python's sha256(bytes(16)) and sha256(struct.pack('<QQ', 1, 2)) */
	is_int(content_key_root(none, &root), 0, "a space has a key");
	is_str(hex(&root), "374708fff7719dd5979ec875d56cd228", "that of no salt");
	is_int(content_key_root(salted, &other), 0, "another space");
	is_str(hex(&other), "0c730b69905c5ef7a4ca5269f7236540", "has another key");

	for (int i = 0; i < 5 * 300; i++)
		tokens[i] = i * 7919 - 3;
	is_int(content_key_next(&root, tokens, 4, &key), 0, "a page of four tokens");
	is_str(hex(&key), "47c5fe74972a05bba031b0dcd99347a3",
	       "its key, a negative token among them");
	is_int(content_key_chain(&root, tokens, 5 * 300 - 1, 300, chain), 0, "pages of 300 tokens");
	is_str(hex(&chain[3]), "d0a0d007c9c056910e15e44164ccf81d", "the key of the fourth");
	key = root;
	for (int i = 0; i < 4; i++)
		check(content_key_next(&key, tokens + i * 300, 300, &key) == 0 &&
		      !memcmp(&key, &chain[i], sizeof(key)));
	ok_all("page by page gives the chain");
	chain[4] = root;
	is_int(content_key_chain(&root, tokens, 299, 300, &chain[4]), 0, "less than a page");
	ok(!memcmp(&chain[4], &root, sizeof(root)), "has no key");
	is_int(content_key_chain(&root, tokens, 600, 300, chain), 0, "the chain again");
	tokens[0]++;
	is_int(content_key_chain(&root, tokens, 600, 300, chain + 2), 0, "with one token changed");
	ok(memcmp(&chain[1], &chain[3], sizeof(key)) != 0, "changes all that follows");
	ok(content_key_next(&root, tokens, 0, &key) < 0, "a page of nothing is refused");
	return done();
}
