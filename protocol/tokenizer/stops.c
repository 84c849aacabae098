#include "protocol/tokenizer/stops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

struct stop {
	char *text; /* owned */
	size_t len;
	size_t *back; /* [len] back[i]: length of the longest proper prefix that ends text[0..i]; owned */
};

struct stops {
	size_t n;
	struct stop v[]; /* [n] */
};

static int stop_init(struct stop *s, const char *text)
{
	size_t k = 0;

	s->len = strlen(text);
	s->text = strdup(text);
	s->back = calloc(s->len, sizeof(*s->back));
	if (!s->text || !s->back)
		return -ENOMEM;
	for (size_t i = 1; i < s->len; i++) {
		while (k && text[i] != text[k])
			k = s->back[k - 1];
		if (text[i] == text[k])
			k++;
		s->back[i] = k;
	}
	return 0;
}

struct stops *stops_new(const char *const *strings, size_t n)
{
	struct stops *s = calloc(1, sizeof(*s) + n * sizeof(s->v[0]));

	if (!s)
		return NULL;
	s->n = n;
	for (size_t i = 0; i < n; i++)
		if (stop_init(&s->v[i], strings[i]) < 0) {
			stops_free(s);
			return NULL;
		}
	return s;
}

void stops_free(struct stops *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].text);
		free(s->v[i].back);
	}
	free(s);
}

size_t stops_n(const struct stops *s)
{
	return s->n;
}

size_t stops_step(const struct stops *s, size_t *states, char byte)
{
	size_t longest = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct stop *stop = &s->v[i];
		size_t k = states[i];

		while (k && (k == stop->len || stop->text[k] != byte))
			k = stop->back[k - 1];
		if (stop->text[k] == byte)
			k++;
		states[i] = k;
		if (k == stop->len)
			longest = MAX(longest, k);
	}
	return longest;
}

const char *stops_found(const struct stops *s, const size_t *states)
{
	const struct stop *found = NULL;

	for (size_t i = 0; i < s->n; i++)
		if (states[i] == s->v[i].len && (!found || s->v[i].len > found->len))
			found = &s->v[i];
	return found ? found->text : NULL;
}
