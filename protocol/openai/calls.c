#include "protocol/openai/calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mix.h"

void openai_calls_init(struct openai_calls *c, size_t max)
{
	*c = (struct openai_calls){0};
	buf_init(&c->text, max);
}

void openai_calls_release(struct openai_calls *c)
{
	buf_release(&c->text);
	free(c->v);
	c->v = NULL;
	c->n = c->cap = 0;
}

void openai_calls_clear(struct openai_calls *c)
{
	buf_reset(&c->text);
	c->n = 0;
}

static void add_piece(struct openai_calls *c, bool begins, const char *text, size_t len)
{
	if (!array_grow(c->v, c->cap, c->n + 1)) {
		c->text.failed = true;
		return;
	}
	c->v[c->n++] = (struct openai_call_piece){
		.call = c->n_begun - 1,
		.begins = begins,
		.cut_last = begins && c->cut,
		.len = len,
	};
	buf_append(&c->text, text, len);
}

void openai_calls_begin(struct openai_calls *c, const char *name, size_t len)
{
	c->n_begun++;
	add_piece(c, true, name, len);
	c->cut = false;
}

void openai_calls_add(struct openai_calls *c, const char *arguments, size_t len)
{
	if (!c->n || c->v[c->n - 1].begins) {
		add_piece(c, false, arguments, len);
		return;
	}
	c->v[c->n - 1].len += len;
	buf_append(&c->text, arguments, len);
}

void openai_calls_cut(struct openai_calls *c)
{
	size_t i = c->n;

	c->cut = true;
	while (i && !c->v[i - 1].begins)
		i--;
	if (i)
		c->v[i - 1].cut = true;
}

size_t openai_calls_bytes(const struct openai_calls *c)
{
	return c->text.cap + c->cap * sizeof(*c->v);
}

void openai_call_id(const char *prefix, const char *answer, uint32_t choice, uint32_t call,
		    bool brief, char out[CALL_ID_MAX])
{
	static const char letters[] =
		"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	const size_t n = brief ? 9 : 24;
	uint64_t state = 0;

	for (const char *p = answer; *p; p++)
		state = mix_add(state, (unsigned char)*p);
	state = mix_add(mix_add(state, choice), call);
	if (!brief) {
		memcpy(out, prefix, strlen(prefix));
		out += strlen(prefix);
	}
	for (size_t i = 0; i < n; i++)
		out[i] = letters[mix_next(&state) % (sizeof(letters) - 1)];
	out[n] = 0;
}
