#include "kernels/ptx.h"

#include <stdlib.h>
#include <string.h>

char *ptx_reveal(const char *text, size_t bytes, size_t *ret_bytes)
{
	static const char target[] = ".target sm_90";
	const size_t len = sizeof(target) - 1;
	const char *at = memmem(text, bytes, target, len);
	size_t before = at ? (size_t)(at - text) + len : 0;
	char *out;

	if (!at || before == bytes || !strchr(", \r\n", text[before]) || !(out = malloc(bytes + 1)))
		return NULL;
	memcpy(out, text, before);
	out[before] = 'a';
	memcpy(out + before + 1, text + before, bytes - before);
	*ret_bytes = bytes + 1;
	for (char *p = out;
	     (p = memmem(p, (size_t)(out + *ret_bytes - p), PTX_HIDDEN, sizeof(PTX_HIDDEN) - 1));)
		memset(p, ' ', sizeof(PTX_HIDDEN) - 1);
	return out;
}
