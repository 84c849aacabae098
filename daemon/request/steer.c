/* Makes the steering of a call (protocol/output/steering.h) from its parameters. */
#include <errno.h>
#include <string.h>

#include "daemon/request/text.h"
#include "protocol/output/steering.h"

static bool same_ids(const struct steering_word *a, const struct ids *b)
{
	return a->n == b->len && !memcmp(a->ids, b->v, b->len * sizeof(*b->v));
}

/* Adds a bad word as the tokens of `before`, a blank or nothing, and its text, unless it is the word that was added
 * last. So it is found within a text as well as at its start. */
static int add_word(struct call *c, const struct openai_word *word, const char *before,
		    struct steering_word *words, size_t *n, struct err *e)
{
	char text[BAD_WORD_BYTES_MAX + 1];
	size_t skip = strlen(before);
	struct ids ids = {0};
	int32_t *copy;
	int r;

	memcpy(text, before, skip);
	memcpy(text + skip, word->text, word->len);
	r = prepare_encode(c, text, skip + word->len, false, SIZE_MAX, &ids, e);
	if (!r && ids.len > STEERING_WORD_MAX)
		r = err_param(e, EINVAL, "bad_words",
			      "the bad word \"%.40s\" has %zu tokens, but may have at most %d",
			      word->text, ids.len, STEERING_WORD_MAX);
	if (!r && ids.len && !(*n && same_ids(&words[*n - 1], &ids))) {
		copy = arena_array(&c->text.arena, ids.len, sizeof(*copy));
		if (!copy) {
			r = err_no_memory(e);
		} else {
			memcpy(copy, ids.v, ids.len * sizeof(*copy));
			words[(*n)++] = (struct steering_word){copy, (uint32_t)ids.len};
		}
	}
	ids_release(&ids);
	return r;
}

/* Returns whether the token with which a call begins may not be drawn: the prompt has tools, and tool_choice is "none".
 * A model that sees tools would else now and then write a call as the text of its answer. */
static bool bars_calls(const struct call *c)
{
	const struct openai_request *ask = &c->text.ask;

	return ask->tool_choice == TOOL_CHOICE_NONE && c->server->call_token >= 0 &&
	       json_array_size(json_object_get(ask->context, "tools"));
}

static int make_words(struct call *c, struct steering_config *g, struct err *e)
{
	const struct openai_request *ask = &c->text.ask;
	struct steering_word *words =
		arena_array(&c->text.arena, 2 * ask->n_bad_words + 1, sizeof(*words));
	int r = words ? 0 : err_no_memory(e);

	if (words && bars_calls(c))
		words[g->n_words++] = (struct steering_word){&c->server->call_token, 1};
	for (size_t i = 0; !r && i < ask->n_bad_words; i++) {
		r = add_word(c, &ask->bad_words[i], "", words, &g->n_words, e);
		if (!r && ask->bad_words[i].text[0] != ' ')
			r = add_word(c, &ask->bad_words[i], " ", words, &g->n_words, e);
	}
	g->words = words;
	return r;
}

int prepare_steering(struct call *c, struct err *e)
{
	struct openai_request *ask = &c->text.ask;
	const struct model_config *m = &c->server->info.model;
	const uint32_t *mask;
	struct steering_config g = {
		.tokenizer = c->server->tokenizer,
		.trie = c->server->trie,
		.vocab_size = m->vocab_size,
		.n_choices = c->text.n_choices,
		.grammar = ask->grammar,
		.automaton_bytes = STEERING_AUTOMATON_BYTES,
		.bounds = server_constraint_bounds(c->server, c->owner),
		.owner = c->owner,
		.thinking = ask->thinking && c->endpoint->reasoning,
		.allowed = ask->allowed.len ? ask->allowed.v : NULL,
		.n_allowed = ask->allowed.len,
		.ends = m->end_tokens,
		.n_ends = m->n_end_tokens,
		.stops = c->text.end_tokens,
		.n_stops = ask->stop_token_ids.len,
		.barred = c->server->tool_marks.v,
		.n_barred = ask->tools.n && !ask->no_calls ? 0 : c->server->tool_marks.n,
		.ends_last = ask->ignore_eos,
	};
	int r;

	if (!ask->grammar && !ask->allowed.len && !ask->n_bad_words && !bars_calls(c))
		return 0;
	ask->grammar = NULL; /* g has it now, and steering_new takes it */
	r = make_words(c, &g, e);
	if (r < 0) {
		grammar_free(g.grammar);
		return r;
	}
	r = steering_new(&g, &c->text.steering, e);
	/* The mask of the first draws is made here: the first of a grammar takes longest. */
	if (!r)
		r = steering_mask(c->text.steering, 0, &mask, e);
	if (r < 0)
		call_drop_steering(c);
	return r;
}
