#include "daemon/api_keys.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/private.h"

/* Returns whether the keys so far have this one. Unlike api_keys_find it takes no care that its time tells nothing: the
 * key comes from the file, not from a request. */
static bool has_key(const struct api_keys *k, const char *key, size_t len)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->v[i].len == len && !memcmp(k->v[i].text, key, len))
			return true;
	return false;
}

/* Makes room for one key more. The array is full if n is 0 or a power of two. */
static int make_room(struct api_keys *k, struct err *e)
{
	const size_t n = k->n;
	struct api_key *grown;

	if (n & (n - 1))
		return 0;
	grown = calloc(n ? 2 * n : 1, sizeof(*grown));
	if (!grown)
		return err_no_memory(e);
	if (n)
		memcpy(grown, k->v, n * sizeof(*grown));
	api_keys_release(k);
	*k = (struct api_keys){.v = grown, .n = n};
	return 0;
}

static int add_key(void *arg, char *line, struct err *e)
{
	struct api_keys *k = arg;
	size_t len = strlen(line);
	int r;

	if (len > API_KEY_MAX)
		return err_set(e, EINVAL, "the key has more than %d characters", API_KEY_MAX);
	for (size_t i = 0; i < len; i++)
		if (line[i] <= ' ' || line[i] > '~')
			return err_set(e, EINVAL, "a line is one key, of visible ASCII characters");
	if (has_key(k, line, len))
		return err_set(e, EINVAL, "the key is there twice");
	r = make_room(k, e);
	if (r < 0)
		return r;
	k->v[k->n].len = len;
	memcpy(k->v[k->n++].text, line, len);
	return 0;
}

int api_keys_open(const char *path, struct api_keys *ret, struct err *e)
{
	struct api_keys k = {0};
	int r = private_lines(path, add_key, &k, e);

	if (!r && !k.n)
		r = err_set(e, EINVAL, "%s: there is no key in it", path);
	if (r < 0) {
		api_keys_release(&k);
		return r;
	}
	*ret = k;
	return 0;
}

void api_keys_release(struct api_keys *k)
{
	if (k->v)
		explicit_bzero(k->v, k->n * sizeof(*k->v));
	free(k->v);
	*k = (struct api_keys){0};
}

size_t api_keys_find(const struct api_keys *k, const char *text, size_t len)
{
	char padded[API_KEY_MAX + 1] = {0};
	size_t found = 0;

	if (!len || len > API_KEY_MAX)
		return 0;
	memcpy(padded, text, len);
	for (size_t i = 0; i < k->n; i++) {
		size_t other = len ^ k->v[i].len;

		for (size_t at = 0; at < sizeof(padded); at++)
			other |= (unsigned char)(padded[at] ^ k->v[i].text[at]);
		/* `found` becomes i + 1 if length and characters are equal. There is no branch, so the time is the same
		 * if they are not. */
		found |= (i + 1) * (other == 0);
	}
	return found;
}
