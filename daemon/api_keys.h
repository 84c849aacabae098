/* The keys by which clients show that they may use the server: --api-key-file and --admin-key-file.
 *
 *     # one key a line: at most 255 visible ASCII characters
 *     sk-3f0c...
 *     sk-97aa... */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { API_KEY_MAX = 255 };

struct api_key {
	size_t len;
	char text[API_KEY_MAX + 1]; /* zeros behind the key */
};

/* All zeros: there are no keys, and none is needed. */
struct api_keys {
	struct api_key *v; /* [n] owned */
	size_t n;
};

/* Reads a file with at least one key, by private_lines (base/private.h), which refuses files that other users may read.
 * -EINVAL or another code, with a sentence that begins with the path. */
int api_keys_open(const char *path, struct api_keys *ret, struct err *e) MUST_CHECK;
void api_keys_release(struct api_keys *k);

/* Returns the number of the key that is this text: keys count from 1, in the order of the file. 0: no key is this text.
 * The time does not depend on how much of a key the text has right. */
size_t api_keys_find(const struct api_keys *k, const char *text, size_t len);
