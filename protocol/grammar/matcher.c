#include "protocol/grammar/matcher.h"

#include <errno.h>
#include <stdlib.h>

/* The fewest tokens of each choice between two times that an automaton is full. */
enum { PROGRESS = 64 };

/* The work of an automaton, in items (automaton_work), that a user may cause: so much, and so much more for each
 * token. */
#define WORK_FIRST (UINT64_C(1) << 24)
#define WORK_TOKEN (UINT64_C(1) << 17)

/* Makes a matcher without automaton and masks, whose account is not open. Takes the grammar. */
static struct matcher *make(const struct matcher_config *config, struct grammar *grammar)
{
	struct matcher *m = calloc(1, sizeof(*m));

	if (!m) {
		grammar_free(grammar);
		return NULL;
	}
	m->config = *config;
	m->grammar = grammar;
	m->users = 1;
	list_init(&m->node);
	return m;
}

static uint64_t fixed_bytes(const struct matcher *m)
{
	return sizeof(*m) + grammar_bytes(m->grammar);
}

static int make_masks(struct matcher *m)
{
	return token_masks_new(m->config.trie, m->automaton, m->config.masks_bytes, &m->masks);
}

int matcher_new(const struct matcher_config *config, struct grammar *grammar, struct matcher **ret)
{
	struct matcher *m = make(config, grammar);
	int r;

	if (!m)
		return -ENOMEM;
	m->work_max = WORK_FIRST;
	m->hash = grammar_hash(grammar);
	r = account_open(&m->account, &config->bounds, fixed_bytes(m) + config->reserve);
	if (r == 0) {
		account_add(&m->account, fixed_bytes(m));
		r = automaton_new(grammar, config->automaton_bytes, &m->account, &m->automaton);
	}
	if (r == 0)
		r = make_masks(m);
	if (r < 0)
		matcher_leave(m);
	else
		*ret = m;
	return r == -E2BIG ? -ENOBUFS : r;
}

void matcher_leave(struct matcher *m)
{
	if (!m)
		return;
	if (--m->users) {
		account_reserve(&m->account, m->account.reserve - m->config.reserve);
		return;
	}
	list_remove(&m->node);
	token_masks_free(m->masks);
	automaton_free(m->automaton);
	grammar_free(m->grammar);
	account_close(&m->account);
	free(m);
}

static bool may_join(const struct matcher *m, const struct matcher *other)
{
	return m->config.owner == other->config.owner && m->config.trie == other->config.trie &&
	       m->hash == other->hash && !automaton_failed(other->automaton, NULL) &&
	       grammar_equal(m->grammar, other->grammar);
}

void matcher_share(struct matcher **m, struct list *shared)
{
	list_for_each (other, shared, struct matcher, node) {
		if (!may_join(*m, other))
			continue;
		matcher_leave(*m);
		other->users++;
		other->work_max += WORK_FIRST;
		account_reserve(&other->account, other->account.reserve + other->config.reserve);
		*m = other;
		return;
	}
	list_append(shared, &(*m)->node);
}

void matcher_count(struct matcher *m)
{
	m->progress++;
	m->work_max += WORK_TOKEN;
}

bool matcher_overworked(const struct matcher *m)
{
	return automaton_work(m->automaton) > m->work_max;
}

/* Makes a user of a shared matcher the only one of a new matcher, which nobody else will share. */
static int leave_with(struct matcher **m, uint32_t *states, uint32_t n)
{
	struct matcher *old = *m, *new = make(&old->config, grammar_share(old->grammar));
	int r = new ? account_open(&new->account, &old->config.bounds, 0) : -ENOMEM;

	if (r < 0)
		return r;
	r = automaton_copy(old->automaton, &new->account, states, n, &new->automaton);
	if (r < 0) {
		matcher_leave(new);
		return r;
	}
	/* The copy has the work of the old one. */
	new->work_max = old->work_max;
	*m = new;
	matcher_leave(old);
	account_add(&new->account, fixed_bytes(new));
	account_reserve(&new->account, fixed_bytes(new) + new->config.reserve);
	return make_masks(new);
}

/* Makes the automaton of the only user forget. */
static int forget(struct matcher *m, uint32_t *states, uint32_t n)
{
	int r;

	m->progress = 0;
	token_masks_free(m->masks);
	m->masks = NULL;
	r = automaton_forget(m->automaton, states, n);
	return r < 0 ? r : make_masks(m);
}

int matcher_renew(struct matcher **m, uint32_t *states, uint32_t n, int why)
{
	if ((*m)->users > 1)
		return leave_with(m, states, n);
	/* A grammar that fills the memory of a request again and again is at fault itself, unlike one that finds memory
	 * taken by others. Forgetting counts as work, which is bounded for both. */
	if (why == -ENOMEM || (why == -ENOBUFS && (*m)->progress < PROGRESS * n))
		return why;
	return forget(*m, states, n);
}
