/* Any bytes as stop strings and a text: at every byte of the text the automata find what a plain search finds. The
 * input begins with at most eight strings, each behind a byte that gives its length. The strings also end at a length
 * byte of 0, or at an empty string. The rest is the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "protocol/tokenizer/stops.h"

enum { STRINGS = 8, LONGEST = 32 };

/* Returns the length of the longest beginning of a string, perhaps all of it, with which the text ends. */
static size_t longest_beginning(const char *string, const char *text, size_t len)
{
	size_t n = MIN(strlen(string), len);

	while (n && memcmp(text + len - n, string, n) != 0)
		n--;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	char strings[STRINGS][LONGEST + 1];
	const char *list[STRINGS];
	size_t states[STRINGS] = {0}, n = 0, len;
	struct stops *s;
	char *text;

	while (n < STRINGS && data < end && *data) {
		size_t want = MIN((size_t)*data % LONGEST + 1, (size_t)(end - data - 1));

		data++;
		memcpy(strings[n], data, want);
		strings[n][want] = 0;
		data += want;
		if (!strings[n][0])
			break;
		list[n] = strings[n];
		n++;
	}
	s = stops_new(list, n);
	len = (size_t)(end - data);
	text = malloc(len + 1);
	if (!s || !text || stops_n(s) != n)
		abort();
	memcpy(text, data, len);
	for (size_t i = 1; i <= len; i++) {
		size_t found = stops_step(s, states, text[i - 1]), want = 0;

		for (size_t k = 0; k < n; k++) {
			size_t state = longest_beginning(list[k], text, i);

			if (states[k] != state)
				abort();
			if (state == strlen(list[k]))
				want = MAX(want, state);
		}
		if (found != want)
			abort();
	}
	free(text);
	stops_free(s);
	return 0;
}
