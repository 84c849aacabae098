#include "daemon/request/turns.h"

#include <string.h>

/* If a prompt has more than TURNS_MAX ends, the first TURNS_FIRST are kept (those of system prompt and examples), and
 * the last TURNS_MAX - TURNS_FIRST. */
enum { TURNS_FIRST = TURNS_MAX / 4 };

/* A user's message for trying the template: ordinary text, which no template treats specially. */
static const char probe[] = "tigon";

static int32_t first_special(const struct tokenizer *t, const char *text, size_t len)
{
	struct ids ids = {0};
	int32_t found = -1;

	if (!tokenizer_encode(t, text, len, true, NULL, &ids))
		for (size_t i = 0; found < 0 && i < ids.len; i++)
			if (tokenizer_is_special(t, ids.v[i]))
				found = ids.v[i];
	ids_release(&ids);
	return found;
}

int32_t turns_token(const struct template *template, const json_t *arguments,
		    const struct tokenizer *t)
{
	json_t *context = json_pack("{s:[{s:s, s:s}], s:b}", "messages", "role", "user", "content",
				    probe, "add_generation_prompt", 0);
	struct err e = {0};
	struct buf text;
	int32_t found = -1;

	if (!context || json_object_update_missing(context, (json_t *)(uintptr_t)arguments) < 0) {
		json_decref(context);
		return -1;
	}
	buf_init(&text, 1 << 20);
	/* A template that needs more variables than a message fails here; then the token is not known. */
	if (!template_render(template, context, NULL, &text, &e)) {
		const char *at = strstr(buf_str(&text), probe);

		if (at) {
			at += sizeof(probe) - 1;
			found = first_special(t, at, strlen(at));
		}
	}
	buf_release(&text);
	json_decref(context);
	return found;
}

static bool is_end(int32_t id, const int32_t *ends, uint32_t n_ends)
{
	for (uint32_t i = 0; i < n_ends; i++)
		if (ends[i] == id)
			return true;
	return false;
}

uint32_t turns_find(const int32_t *prompt, size_t n_prompt, const int32_t *ends, uint32_t n_ends,
		    uint32_t ret[TURNS_MAX])
{
	size_t n = 0, seen = 0;
	uint32_t kept = 0;

	for (size_t i = 0; i + 1 < n_prompt; i++)
		n += is_end(prompt[i], ends, n_ends);
	for (size_t i = 0; seen < n; i++) {
		if (!is_end(prompt[i], ends, n_ends))
			continue;
		if (n <= TURNS_MAX || seen < TURNS_FIRST || seen >= n - (TURNS_MAX - TURNS_FIRST))
			ret[kept++] = (uint32_t)(i + 1);
		seen++;
	}
	return kept;
}
