#include "protocol/output/steering.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/problem.h"
#include "protocol/grammar/matcher.h"
#include "protocol/output/reasoning.h"
#include "scheduler/plan.h"

static const char closing[] = "</think>";

/* The state of a choice. */
struct steered {
	uint32_t *mask; /* [words] */
	uint8_t n_tag;	/* bytes of </think> that the text ends with */
	bool begun;	/* the grammar reads the text from now on */
	uint32_t left;	/* line ends that may still come behind </think>, before the text */
	int32_t last[STEERING_WORD_MAX - 1]; /* [n_last] the last tokens */
	uint32_t n_last;
};

struct steering {
	struct steering_config config;
	struct account account;	 /* of all memory of the object, but for the matcher's */
	size_t words;		 /* of a mask */
	struct matcher *matcher; /* NULL: no grammar */
	uint32_t *states;	 /* [n_choices] of its automaton, once the grammar has begun */
	size_t longest_word;	 /* tokens of the longest bad word */
	bool depends;		 /* steering_depends */
	/* [words] the tokens that may be drawn at all: those that are allowed, and no bad words of one token; NULL:
	 * every token */
	uint32_t *always;
	uint32_t
		*thinking; /* [words] the mask before the grammar begins; NULL: it begins at once */
	uint32_t *bits;	   /* [n_choices][words] memory of the choices' masks */
	int32_t *
		line_ends; /* [n_line_ends] with `thinking`: the tokens that begin with a line end */
	size_t n_line_ends, line_ends_cap;
	struct steered *choices; /* [n_choices] */
};

static void set(uint32_t *bits, int32_t id)
{
	bits[id / 32] |= UINT32_C(1) << id % 32;
}

static void clear(uint32_t *bits, int32_t id)
{
	bits[id / 32] &= ~(UINT32_C(1) << id % 32);
}

static bool is_one_of(const int32_t *ids, size_t n, int32_t id)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static bool any(const uint32_t *bits, size_t words)
{
	for (size_t i = 0; i < words; i++)
		if (bits[i])
			return true;
	return false;
}

/* ---- making ---- */

struct shown {
	const struct tokenizer *tokenizer;
	const int32_t *marks;
	size_t n_marks;
};

static const char *shown_bytes(const void *arg, int32_t id, size_t *len)
{
	const struct shown *s = arg;

	if (tokenizer_is_special(s->tokenizer, id) && !is_one_of(s->marks, s->n_marks, id))
		return NULL;
	return tokenizer_bytes(s->tokenizer, id, len);
}

int steering_trie(const struct tokenizer *tokenizer, const int32_t *marks, size_t n_marks,
		  struct token_trie **ret)
{
	const struct shown shown = {tokenizer, marks, n_marks};
	const struct token_source source = {.n = tokenizer_size(tokenizer),
					    .bytes = shown_bytes,
					    .arg = &shown};

	return token_trie_new(&source, ret);
}

static void fill_ones(uint32_t *bits, uint32_t vocab_size)
{
	memset(bits, 0xff, vocab_size / 32 * sizeof(*bits));
	if (vocab_size % 32)
		bits[vocab_size / 32] = (UINT32_C(1) << vocab_size % 32) - 1;
}

/* A tokenizer may have more tokens than the model. */
static bool drawable(const struct steering *s, int32_t id)
{
	return (uint32_t)id < s->config.vocab_size;
}

/* Makes the mask of the tokens that may be drawn at all, if there are others. */
static int make_always(struct steering *s)
{
	const struct steering_config *c = &s->config;
	bool wanted = c->allowed;

	for (size_t i = 0; i < c->n_words; i++)
		wanted |= c->words[i].n == 1;
	if (!wanted)
		return 0;
	s->always = calloc(s->words, sizeof(*s->always));
	if (!s->always)
		return -ENOMEM;
	if (!c->allowed)
		fill_ones(s->always, c->vocab_size);
	for (size_t i = 0; i < c->n_allowed; i++)
		set(s->always, c->allowed[i]);
	s->config.allowed = NULL;
	for (size_t i = 0; i < c->n_words; i++)
		if (c->words[i].n == 1 && drawable(s, c->words[i].ids[0]))
			clear(s->always, c->words[i].ids[0]);
	return 0;
}

/* Lists the tokens of the trie that begin with a line end. */
static int list_line_ends(struct steering *s)
{
	const struct tokenizer *t = s->config.tokenizer;

	for (int32_t id = 0; id < tokenizer_size(t) && drawable(s, id); id++) {
		size_t len;
		const char *bytes = tokenizer_bytes(t, id, &len);
		uint32_t left = 1;

		if (tokenizer_is_special(t, id) || len > TOKEN_BYTES_MAX ||
		    !reasoning_line_ends(bytes, len, &left))
			continue;
		if (!array_grow(s->line_ends, s->line_ends_cap, s->n_line_ends + 1))
			return -ENOMEM;
		s->line_ends[s->n_line_ends++] = id;
	}
	account_add(&s->account, s->line_ends_cap * sizeof(*s->line_ends));
	return 0;
}

static int make_thinking(struct steering *s)
{
	const struct steering_config *c = &s->config;

	s->thinking = calloc(s->words, sizeof(*s->thinking));
	if (!s->thinking)
		return -ENOMEM;
	if (s->always)
		memcpy(s->thinking, s->always, s->words * sizeof(*s->always));
	else
		fill_ones(s->thinking, c->vocab_size);
	for (size_t i = 0; i < c->n_ends; i++)
		clear(s->thinking, c->ends[i]);
	return list_line_ends(s);
}

/* Says why there is no memory for an automaton or an object, or no more work: r is the code of an automaton, of an
 * account or of a mask. */
static int refuse(int r, struct err *e)
{
	switch (r) {
	case -ENOMEM: return err_no_memory(e);
	case -EDQUOT:
		return err_set(e, PROBLEM_CONSTRAINT_MEMORY,
			       "the constraints of this client's requests take all the memory that "
			       "they may; try again later");
	case -ENOSPC:
		return err_set(e, PROBLEM_CONSTRAINT_MEMORY,
			       "the constraints of all requests take all the memory that there is "
			       "for them; try again later");
	default:
		return err_set(e, PROBLEM_CONSTRAINT,
			       "the constraint of the answer takes too much %s",
			       r == -E2BIG ? "work" : "memory");
	}
}

static int init_choices(struct steering *s)
{
	const struct steering_config *c = &s->config;

	s->choices = calloc(c->n_choices, sizeof(*s->choices));
	s->states = calloc(c->n_choices, sizeof(*s->states));
	s->bits = calloc(s->depends ? (size_t)c->n_choices * s->words : 1, sizeof(*s->bits));
	if (!s->choices || !s->states || !s->bits)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_choices; i++) {
		s->choices[i].mask = s->depends ? s->bits + i * s->words : NULL;
		s->choices[i].begun = c->grammar && !c->thinking;
		s->states[i] = AUTOMATON_START;
	}
	return 0;
}

/* Opens the account, with the memory that the object takes whatever is drawn, but for the matcher's. */
static int open_account(struct steering *s)
{
	const struct steering_config *c = &s->config;
	size_t masks = 1 + (c->grammar && c->thinking) + (s->depends ? c->n_choices : 0);
	size_t fixed = sizeof(*s) + masks * s->words * sizeof(*s->bits) +
		       c->n_choices * (sizeof(*s->choices) + sizeof(*s->states));
	int r = account_open(&s->account, &c->bounds, fixed);

	if (r == 0)
		account_add(&s->account, fixed);
	return r == -E2BIG ? -ENOBUFS : r;
}

/* Makes the matcher, which takes the grammar. */
static int make_matcher(struct steering *s)
{
	const struct steering_config *c = &s->config;
	const struct matcher_config config = {.trie = c->trie,
					      .automaton_bytes = c->automaton_bytes,
					      .masks_bytes = STEERING_MASKS_BYTES,
					      .bounds = c->bounds,
					      .reserve = STEERING_RESERVE,
					      .owner = c->owner};
	struct grammar *grammar = c->grammar;

	s->config.grammar = NULL;
	return matcher_new(&config, grammar, &s->matcher);
}

int steering_new(const struct steering_config *config, struct steering **ret, struct err *e)
{
	struct steering *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		grammar_free(config->grammar);
		return err_no_memory(e);
	}
	s->config = *config;
	s->words = PLAN_MASK_WORDS(config->vocab_size);
	for (size_t i = 0; i < config->n_words; i++)
		s->longest_word = MAX(s->longest_word, (size_t)config->words[i].n);
	s->depends = config->grammar || s->longest_word > 1;
	r = open_account(s);
	if (r == 0)
		r = make_always(s);
	if (r == 0 && config->grammar && config->thinking)
		r = make_thinking(s);
	if (r == 0)
		r = init_choices(s);
	if (r == 0 && config->grammar)
		r = make_matcher(s);
	if (r < 0) {
		r = refuse(r, e);
		steering_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void steering_free(struct steering *s)
{
	if (!s)
		return;
	matcher_leave(s->matcher);
	grammar_free(s->config.grammar);
	free(s->states);
	free(s->always);
	free(s->thinking);
	free(s->line_ends);
	free(s->bits);
	free(s->choices);
	account_close(&s->account);
	free(s);
}

bool steering_depends(const struct steering *s)
{
	return s->depends;
}

void steering_trim(struct steering *s)
{
	if (s->matcher && s->matcher->masks && account_is_tight(&s->account))
		token_masks_drop(s->matcher->masks);
}

void steering_share(struct steering *s, struct list *shared)
{
	if (s->matcher)
		matcher_share(&s->matcher, shared);
}

/* ---- a full automaton ---- */

/* Gives the choices an automaton without other states. why: the code with which theirs has failed. */
static int renew(struct steering *s, int why, struct err *e)
{
	int r = matcher_renew(&s->matcher, s->states, s->config.n_choices, why);

	return r < 0 ? refuse(r, e) : 0;
}

/* Lets the grammar of a choice read bytes. */
static int read_bytes(struct steering *s, uint32_t choice, const char *bytes, size_t len,
		      struct err *e)
{
	uint32_t *state = &s->states[choice];
	uint32_t next = automaton_read(s->matcher->automaton, *state, bytes, len);
	int r = automaton_failed(s->matcher->automaton, NULL);

	if (r < 0) {
		r = renew(s, r, e);
		if (r < 0)
			return r;
		next = automaton_read(s->matcher->automaton, *state, bytes, len);
		r = automaton_failed(s->matcher->automaton, NULL);
	}
	*state = next;
	return r < 0 ? refuse(r, e) : 0;
}

/* ---- tokens ---- */

/* Looks for </think> in the bytes. Returns the number of bytes up to its end; 0: it does not end here. */
static size_t end_of_thinking(struct steered *c, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] == closing[c->n_tag])
			c->n_tag++;
		else
			c->n_tag = bytes[i] == closing[0];
		if (c->n_tag == sizeof(closing) - 1)
			return i + 1;
	}
	return 0;
}

static void remember(struct steering *s, struct steered *c, int32_t token)
{
	size_t most = s->longest_word - 1;

	if (s->longest_word <= 1)
		return;
	if (c->n_last == most)
		memmove(c->last, c->last + 1, --c->n_last * sizeof(*c->last));
	c->last[c->n_last++] = token;
}

int steering_take(struct steering *s, uint32_t choice, int32_t token, struct err *e)
{
	const struct steering_config *g = &s->config;
	struct steered *c = &s->choices[choice];
	const char *bytes;
	size_t len, n;

	if (s->matcher)
		matcher_count(s->matcher);
	remember(s, c, token);
	if (!s->matcher || is_one_of(g->ends, g->n_ends, token) ||
	    is_one_of(g->stops, g->n_stops, token))
		return 0;
	bytes = tokenizer_bytes(g->tokenizer, token, &len);
	if (tokenizer_is_special(g->tokenizer, token) && !c->begun)
		return 0;
	if (!c->begun) {
		n = end_of_thinking(c, bytes, len);
		if (!n)
			return 0;
		c->begun = true;
		c->left = REASONING_LINE_ENDS;
		bytes += n;
		len -= n;
	}
	n = reasoning_line_ends(bytes, len, &c->left);
	return n < len ? read_bytes(s, choice, bytes + n, len - n, e) : 0;
}

/* ---- masks ---- */

/* Writes the mask of the automaton's state. -ENOMEM, -ENOBUFS, -ENOSPC, -EDQUOT, -E2BIG as token_mask. */
static int state_mask(struct steering *s, uint32_t choice, struct err *e)
{
	struct steered *c = &s->choices[choice];
	struct automaton *a = s->matcher->automaton;
	size_t words = MIN(s->words, token_trie_words(s->config.trie));
	const uint32_t *bits;
	int r = token_mask(s->matcher->masks, s->states[choice], &bits, e);

	if (r < 0)
		return r;
	memcpy(c->mask, bits, words * sizeof(*c->mask));
	memset(c->mask + words, 0, (s->words - words) * sizeof(*c->mask));
	/* Of a token that begins with line ends of the tag the grammar reads the rest. */
	for (size_t i = 0; c->left && i < s->n_line_ends; i++) {
		int32_t id = s->line_ends[i];
		uint32_t left = c->left;
		size_t len, n;
		const char *bytes = tokenizer_bytes(s->config.tokenizer, id, &len);

		n = reasoning_line_ends(bytes, len, &left);
		if (n == len ||
		    automaton_read(a, s->states[choice], bytes + n, len - n) != AUTOMATON_DEAD)
			set(c->mask, id);
		else
			clear(c->mask, id);
	}
	return automaton_failed(a, e);
}

/* Writes the mask of the grammar, without end tokens. */
static int grammar_mask(struct steering *s, uint32_t choice, struct err *e)
{
	const struct steering_config *g = &s->config;
	struct steered *c = &s->choices[choice];
	int r = state_mask(s, choice, e), why = automaton_failed(s->matcher->automaton, NULL);

	if (r < 0 && why < 0) {
		r = renew(s, why, e);
		if (r < 0)
			return r;
		r = state_mask(s, choice, e);
	}
	if (r == 0 && matcher_overworked(s->matcher))
		r = -E2BIG;
	if (r < 0)
		return refuse(r, e);
	if (g->vocab_size % 32) /* not the tokens that the model does not have */
		c->mask[s->words - 1] &= (UINT32_C(1) << g->vocab_size % 32) - 1;
	for (size_t i = 0; i < g->n_barred; i++)
		if ((uint32_t)g->barred[i] < g->vocab_size)
			clear(c->mask, g->barred[i]);
	for (size_t i = 0; i < g->n_ends; i++)
		clear(c->mask, g->ends[i]);
	for (size_t i = 0; s->always && i < s->words; i++)
		c->mask[i] &= s->always[i];
	return 0;
}

static void add_ends(const struct steering *s, struct steered *c)
{
	for (size_t i = 0; i < s->config.n_ends; i++)
		set(c->mask, s->config.ends[i]);
	for (size_t i = 0; i < s->config.n_stops; i++)
		set(c->mask, s->config.stops[i]);
}

/* Clears the last tokens of bad words whose other tokens the choice ends with. */
static void clear_bad_words(const struct steering *s, struct steered *c)
{
	for (size_t i = 0; i < s->config.n_words; i++) {
		const struct steering_word *w = &s->config.words[i];
		uint32_t before = w->n - 1;

		if (w->n > 1 && before <= c->n_last && drawable(s, w->ids[before]) &&
		    !memcmp(c->last + c->n_last - before, w->ids, before * sizeof(*w->ids)))
			clear(c->mask, w->ids[before]);
	}
}

/* Writes the mask of a choice whose mask depends on its tokens. */
static int write_mask(struct steering *s, uint32_t choice, struct err *e)
{
	struct steered *c = &s->choices[choice];
	const uint32_t *before = s->thinking ? s->thinking : s->always;
	int r = c->begun ? grammar_mask(s, choice, e) : 0;
	bool may_end, ends_last = s->config.ends_last;

	if (r < 0)
		return r;
	may_end = c->begun && automaton_may_end(s->matcher->automaton, s->states[choice]);
	if (!c->begun && before)
		memcpy(c->mask, before, s->words * sizeof(*c->mask));
	else if (!c->begun)
		fill_ones(c->mask, s->config.vocab_size);
	if (may_end && !ends_last)
		add_ends(s, c);
	clear_bad_words(s, c);
	if (may_end && ends_last && !any(c->mask, s->words))
		add_ends(s, c);
	return 0;
}

int steering_mask(struct steering *s, uint32_t choice, const uint32_t **ret, struct err *e)
{
	struct steered *c = &s->choices[choice];
	const uint32_t *mask = c->mask ? c->mask : s->always;
	int r;

	steering_trim(s);
	r = c->mask ? write_mask(s, choice, e) : 0;
	if (r < 0)
		return r;
	if (mask && !any(mask, s->words))
		return err_set(e, PROBLEM_CONSTRAINT,
			       "no token of the model can continue the answer: its constraint, "
			       "allowed_token_ids and bad_words leave none");
	*ret = mask;
	return 0;
}
