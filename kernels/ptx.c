#include "kernels/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the first hidden instruction in a text; NULL: there is none. */
static char *find_hidden(const char *text, size_t bytes)
{
	return memmem(text, bytes, PTX_HIDDEN, sizeof(PTX_HIDDEN) - 1);
}

int ptx_reveal(const char *text, size_t bytes, char **ret, size_t *ret_bytes)
{
	static const char target[] = ".target sm_90";
	const size_t len = sizeof(target) - 1;
	const char *at = memmem(text, bytes, target, len);
	size_t before = at ? (size_t)(at - text) + len : 0;
	char *out;

	*ret = NULL;
	if (!find_hidden(text, bytes))
		return 0;
	if (!at || before == bytes || !strchr(", \r\n", text[before]))
		return -ENOEXEC;
	out = malloc(bytes + 1);
	if (!out)
		return -ENOMEM;
	memcpy(out, text, before);
	out[before] = 'a';
	memcpy(out + before + 1, text + before, bytes - before);
	*ret_bytes = bytes + 1;
	for (char *p = out; (p = find_hidden(p, (size_t)(out + *ret_bytes - p)));)
		memset(p, ' ', sizeof(PTX_HIDDEN) - 1);
	*ret = out;
	return 0;
}
