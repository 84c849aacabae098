/* JSON in a test's text without backslashes: {'a':'b'} for {"a":"b"}. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Returns the text with " in place of each '; valid until the fourth call after this one. */
__attribute__((unused)) static const char *quoted(const char *text)
{
	static char copies[4][1 << 16];
	static int next;
	char *copy = copies[next = (next + 1) % 4];
	size_t n = 0;

	for (; text[n] && n < sizeof(copies[0]) - 1; n++)
		copy[n] = text[n] == '\'' ? '"' : text[n];
	if (text[n]) {
		fprintf(stderr, "quoted: a text of more than %zu bytes\n", n);
		abort();
	}
	copy[n] = 0;
	return copy;
}
