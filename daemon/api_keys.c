#include "daemon/api_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/private.h"

static int add_key(void *arg, char *line, struct err *e)
{
	struct api_keys *k = arg;
	size_t len = strlen(line);
	struct api_key *grown;

	if (len > API_KEY_MAX)
		return err_set(e, EINVAL, "the key has more than %d characters", API_KEY_MAX);
	for (size_t i = 0; i < len; i++)
		if (line[i] <= ' ' || line[i] > '~')
			return err_set(e, EINVAL, "a line is one key, of visible ASCII characters");
	if (api_keys_find(k, line, len))
		return err_set(e, EINVAL, "the key is there twice");
	grown = calloc(k->n + 1, sizeof(*grown));
	if (!grown)
		return err_no_memory(e);
	if (k->n)
		memcpy(grown, k->v, k->n * sizeof(*grown));
	grown[k->n].len = len;
	memcpy(grown[k->n].text, line, len);
	len = k->n + 1;
	api_keys_release(k);
	*k = (struct api_keys){.v = grown, .n = len};
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
