#include "protocol/transfer/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/key_sets.h"

_Static_assert((int)PEERS_MAX == (int)KEY_SETS_MAX, "each peer has a set");

struct peer {
	bool used;
	enum peer_state state;
	char endpoint[WIRE_ENDPOINT];
	char refusal[ERR_TEXT_MAX];
	uint8_t worker[WIRE_ID]; /* from its last HELLO */
	uint64_t due_ns;	 /* time of the next HELLO, PING or PEERS_DIED */
	uint64_t away_ns;	 /* as in struct peer_info */
	uint64_t sequence;	 /* sequence of the last PING */
	uint32_t unanswered;	 /* PINGs since the last message of the peer */
	bool draining;
	uint32_t running;
	uint32_t page_tokens;
	uint64_t last_sent; /* peers.n_sent when a prompt was last sent to it */
	/* The load: tokens of other decode workers' prompts, as the last PONG says, and of our open ones. */
	uint64_t others, own;
	uint64_t told_ns; /* time of that PONG */
	/* n_asked of our open prompts: of those sent before the last PING, and of those sent after it */
	uint64_t before, since;
	uint32_t n_open; /* prompts that were sent to it and whose deliveries have not ended */
	/* Its speed: computed_tokens in computing_ns; 0: unknown. Older prompts count less (SPEED_FADES). */
	double computed_tokens, computing_ns;
	uint64_t computed_ns; /* when the delivery of a prompt that it computed was last complete */
	uint64_t answered_ns; /* time of the last peers_answered */
	uint32_t n_silences;  /* silences since then */
	bool drags; /* a silence began because a delivery dragged: only a complete one ends it */
	uint64_t silent_ns; /* it gets no prompts before this time; 0: it is not silent */
	/* The HELLO of another process ends no silence before this time. peers_answered sets it to 0. */
	uint64_t renew_ns;
};

/* When a prompt is measured, the tokens and the time of all earlier ones are multiplied by this. */
static const double SPEED_FADES = 0.875;

struct peers {
	uint64_t heartbeat_ns, n_sent; /* n_sent: prompts that were sent to any peer */
	struct peer peers[PEERS_MAX];
	struct key_sets *keys; /* owned; set i has the pages of peer i */
};

struct peers *peers_new(const uint64_t seed[2], uint64_t heartbeat_ns)
{
	struct peers *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->heartbeat_ns = heartbeat_ns;
	p->keys = key_sets_new(seed);
	if (!p->keys) {
		free(p);
		return NULL;
	}
	return p;
}

void peers_free(struct peers *p)
{
	if (!p)
		return;
	key_sets_free(p->keys);
	free(p);
}

int peers_add(struct peers *p, const char *endpoint, uint64_t now_ns, uint32_t *ret, struct err *e)
{
	uint32_t free_one = PEERS_MAX;

	if (!endpoint[0])
		return err_set(e, EINVAL, "the endpoint of a peer is empty");
	if (strlen(endpoint) >= WIRE_ENDPOINT)
		return err_set(e, ENAMETOOLONG, "an endpoint has %zu bytes, more than %d",
			       strlen(endpoint), WIRE_ENDPOINT - 1);
	for (uint32_t i = PEERS_MAX; i-- > 0;) {
		if (!p->peers[i].used)
			free_one = i;
		else if (!strcmp(p->peers[i].endpoint, endpoint)) {
			*ret = i;
			return 0;
		}
	}
	if (free_one == PEERS_MAX)
		return err_set(e, ENOSPC, "there are %d peers already", PEERS_MAX);
	p->peers[free_one] = (struct peer){.used = true, .due_ns = now_ns, .away_ns = now_ns};
	snprintf(p->peers[free_one].endpoint, WIRE_ENDPOINT, "%s", endpoint);
	*ret = free_one;
	return 0;
}

/* Forgets that a peer was silent. */
static void forget_silence(struct peer *x)
{
	x->n_silences = 0;
	x->silent_ns = 0;
	x->drags = false;
}

/* Forgets the silence of a peer that is another process now, unless an earlier process was let off not long ago. */
static void renew(struct peer *x, uint64_t now_ns)
{
	if (!x->n_silences || now_ns < x->renew_ns)
		return;
	x->renew_ns = now_ns + PEERS_SILENT_MAX_NS;
	forget_silence(x);
}

/* Forgets the cached pages of the process at the endpoint, its load, and whether it drains. */
static void forget(struct peers *p, uint32_t peer)
{
	struct peer *x = &p->peers[peer];

	key_sets_clear(p->keys, peer);
	x->others = 0;
	x->running = 0;
	x->draining = false;
}

void peers_remove(struct peers *p, uint32_t peer)
{
	forget(p, peer);
	key_sets_limit(p->keys, peer, 0);
	p->peers[peer].used = false;
}

uint64_t peers_mask(const struct peers *p)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < PEERS_MAX; i++)
		mask |= (uint64_t)p->peers[i].used << i;
	return mask;
}

/* Returns a + b, UINT64_MAX if that overflows. */
static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns a - b, 0 if b is greater. */
static uint64_t less(uint64_t a, uint64_t b)
{
	return a - MIN(a, b);
}

static uint64_t load(const struct peer *x)
{
	return add(x->others, x->own);
}

void peers_get(const struct peers *p, uint32_t peer, struct peer_info *ret)
{
	const struct peer *x = &p->peers[peer];

	*ret = (struct peer_info){
		.endpoint = x->endpoint,
		.refusal = x->state == PEER_REFUSED ? x->refusal : "",
		.state = x->state,
		.draining = x->draining,
		.silent = x->silent_ns != 0,
		.sequence = x->sequence,
		.load = load(x),
		.others = x->others,
		.running = x->running,
		.away_ns = x->away_ns,
		.n_keys = key_sets_count(p->keys, peer),
	};
	memcpy(ret->worker, x->worker, sizeof(ret->worker));
}

/* ---- messages from a peer ---- */

bool peers_hello(struct peers *p, uint32_t peer, const struct wire_hello *hello, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];
	bool other = memcmp(x->worker, hello->worker, sizeof(x->worker)) != 0;
	bool lost = other && x->state == PEER_REGISTERED;

	if (other) {
		forget(p, peer);
		renew(x, now_ns);
		x->computed_tokens = x->computing_ns = 0;
	}
	memcpy(x->worker, hello->worker, sizeof(x->worker));
	x->page_tokens = hello->layout.page_tokens;
	key_sets_limit(p->keys, peer, MIN(hello->n_pages, (uint32_t)PEERS_KEYS_MAX));
	/* A HELLO of a peer that is Registered already does not postpone the next PING. */
	if (x->state != PEER_REGISTERED)
		x->due_ns = now_ns + p->heartbeat_ns;
	x->state = PEER_REGISTERED;
	x->unanswered = 0;
	return lost;
}

void peers_refuse(struct peers *p, uint32_t peer, uint64_t now_ns, const char *why)
{
	struct peer *x = &p->peers[peer];

	forget(p, peer);
	if (x->state == PEER_REGISTERED)
		x->away_ns = now_ns;
	snprintf(x->refusal, sizeof(x->refusal), "%s", why);
	x->state = PEER_REFUSED;
	x->due_ns = now_ns + PEERS_REFUSED_NS;
}

/* Adds keys to the peer's set, the first one last, so that the beginning of a prompt leaves last. -ENOMEM: some keys
 * were not added. */
static int add_keys(struct peers *p, uint32_t peer, const struct wire_key *keys, uint32_t n)
{
	int r = 0;

	while (r == 0 && n-- > 0)
		r = key_sets_add(p->keys, peer, &keys[n]);
	return r;
}

int peers_pong(struct peers *p, uint32_t peer, const struct wire_pong *pong, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];

	if (x->state != PEER_REGISTERED)
		return 0;
	x->unanswered = 0;
	if (pong->sequence == x->sequence) {
		x->others = less(pong->queued_tokens, x->before);
		x->told_ns = now_ns;
	}
	x->running = pong->running;
	x->draining = pong->draining;
	if (pong->forgotten)
		key_sets_clear(p->keys, peer);
	return add_keys(p, peer, pong->keys, pong->n_keys);
}

void peers_alive(struct peers *p, uint32_t peer)
{
	p->peers[peer].unanswered = 0;
}

/* Marks a peer as Dead. Keeps its keys, because the same process may come back. */
static void mark_dead(const struct peers *p, struct peer *x, uint64_t now_ns)
{
	/* The peer was last known to be there when the first PING that it did not answer was sent. */
	if (x->state == PEER_REGISTERED)
		x->away_ns = now_ns - MIN(x->unanswered * p->heartbeat_ns, now_ns);
	x->state = PEER_DEAD;
	x->due_ns = now_ns + MIN(p->heartbeat_ns, PEERS_HELLO_NS);
	x->others = 0;
}

bool peers_lost(struct peers *p, uint32_t peer, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];
	bool registered = x->state == PEER_REGISTERED;

	/* A Refused peer becomes Dead, and so gets a HELLO soon: another process may be at its endpoint then. */
	if (registered || x->state == PEER_REFUSED)
		mark_dead(p, x, now_ns);
	return registered;
}

/* ---- time ---- */

static enum peers_due tick_one(const struct peers *p, struct peer *x, uint64_t now_ns)
{
	if (x->state != PEER_REGISTERED) {
		x->due_ns =
			now_ns + (x->state == PEER_REFUSED ? PEERS_REFUSED_NS
							   : MIN(p->heartbeat_ns, PEERS_HELLO_NS));
		return PEERS_SAY_HELLO;
	}
	if (x->unanswered == PEERS_MISSED) {
		mark_dead(p, x, now_ns);
		return PEERS_DIED;
	}
	x->due_ns = now_ns + p->heartbeat_ns;
	x->unanswered++;
	x->sequence++;
	x->before += x->since;
	x->since = 0;
	return PEERS_SAY_PING;
}

enum peers_due peers_tick(struct peers *p, uint64_t now_ns, uint32_t *ret)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer *x = &p->peers[i];

		if (x->silent_ns <= now_ns)
			x->silent_ns = 0;
		if (x->used && x->due_ns <= now_ns) {
			*ret = i;
			return tick_one(p, x, now_ns);
		}
	}
	return PEERS_NOTHING;
}

static uint64_t next_event(const struct peer *x)
{
	return x->silent_ns ? MIN(x->silent_ns, x->due_ns) : x->due_ns;
}

uint64_t peers_deadline(const struct peers *p)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (p->peers[i].used)
			first = MIN(first, next_event(&p->peers[i]));
	return first;
}

/* ---- prompts ---- */

static bool takes_prompts(const struct peer *x)
{
	return x->used && x->state == PEER_REGISTERED && !x->draining && !x->silent_ns &&
	       !(x->n_silences && x->n_open);
}

/* Returns a peer's nanoseconds a token; 0: not known. */
static double ns_per_token(const struct peer *x)
{
	return x->used && x->computed_tokens > 0 ? x->computing_ns / x->computed_tokens : 0;
}

/* Returns how many tokens of other decode workers' prompts a peer has left now. Without this a peer would be avoided
 * until its next PONG for prompts that it had computed long before. */
static uint64_t others_left(const struct peer *x, uint64_t now_ns)
{
	double ns = ns_per_token(x);

	return ns > 0 ? less(x->others, (uint64_t)MIN((double)less(now_ns, x->told_ns) / ns, 1e18))
		      : x->others;
}

/* Returns how many tokens a peer computes until it finishes a new prompt of n pages, of which it has n_cached
 * cached. */
static uint64_t tokens_to_finish(const struct peer *x, uint32_t n, uint32_t n_cached,
				 uint64_t now_ns)
{
	return add(add(others_left(x, now_ns), x->own), (uint64_t)(n - n_cached) * x->page_tokens);
}

/* Returns whether peer a, which has a_cached pages of a prompt of n pages cached, is a better choice than peer b. */
static bool is_better(const struct peers *p, uint32_t n, uint64_t now_ns, uint32_t a,
		      uint32_t a_cached, uint32_t b, uint32_t b_cached)
{
	const struct peer *x = &p->peers[a], *y = &p->peers[b];
	uint64_t x_takes = tokens_to_finish(x, n, a_cached, now_ns),
		 y_takes = tokens_to_finish(y, n, b_cached, now_ns);

	if (x_takes != y_takes)
		return x_takes < y_takes;
	if (a_cached != b_cached)
		return a_cached > b_cached;
	return x->last_sent < y->last_sent;
}

bool peers_choose(const struct peers *p, const struct wire_key *keys, uint32_t n, uint64_t excluded,
		  uint64_t now_ns, uint32_t *ret, uint32_t *ret_n_cached)
{
	uint32_t n_cached[PEERS_MAX] = {0}, chosen = PEERS_MAX;
	uint64_t can = 0, with;

	for (uint32_t i = 0; i < PEERS_MAX; i++)
		can |= (uint64_t)takes_prompts(&p->peers[i]) << i;
	can &= ~excluded;
	/* `with`: the candidates that have the first i pages of the prompt cached */
	with = can;
	for (uint32_t i = 0; i < n && with; i++) {
		with &= key_sets_with(p->keys, &keys[i]);
		for (uint64_t left = with; left; left &= left - 1)
			n_cached[__builtin_ctzll(left)] = i + 1;
	}
	for (uint64_t left = can; left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (chosen == PEERS_MAX ||
		    is_better(p, n, now_ns, i, n_cached[i], chosen, n_cached[chosen]))
			chosen = i;
	}
	if (chosen == PEERS_MAX)
		return false;
	*ret = chosen;
	*ret_n_cached = n_cached[chosen];
	return true;
}

int peers_sent(struct peers *p, uint32_t peer, const struct wire_key *keys, uint32_t n,
	       struct peers_prompt *prompt)
{
	struct peer *x = &p->peers[peer];

	prompt->sequence = x->sequence;
	x->n_open++;
	x->own += prompt->n_tokens;
	x->since += prompt->n_asked;
	x->last_sent = ++p->n_sent;
	return add_keys(p, peer, keys, n);
}

void peers_done(struct peers *p, uint32_t peer, const struct peers_prompt *prompt)
{
	struct peer *x = &p->peers[peer];
	uint64_t *asked = prompt->sequence == x->sequence ? &x->since : &x->before;

	x->n_open--;
	x->own -= prompt->n_tokens;
	*asked -= prompt->n_asked;
}

/* ---- speed and silence ---- */

bool peers_answered(struct peers *p, uint32_t peer, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];
	bool ends = x->n_silences > 0 && !x->drags;

	x->answered_ns = now_ns;
	if (x->drags)
		return false;
	x->renew_ns = 0;
	forget_silence(x);
	return ends;
}

bool peers_measure(struct peers *p, uint32_t peer, uint64_t n_tokens, uint64_t sent_ns,
		   uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];
	/* Of prompts that wait at the peer at the same time, each counts from the end of the one before it. */
	uint64_t from_ns = MAX(sent_ns, x->computed_ns);

	x->computed_ns = now_ns;
	x->computed_tokens = x->computed_tokens * SPEED_FADES + (double)n_tokens;
	x->computing_ns = x->computing_ns * SPEED_FADES + (double)(now_ns - MIN(from_ns, now_ns));
	if (!x->drags)
		return false;
	x->renew_ns = 0;
	forget_silence(x);
	return true;
}

uint64_t peers_patience(const struct peers *p, uint32_t peer, uint64_t n_tokens)
{
	const struct peer *x = &p->peers[peer];
	/* The prompt that is sent after a silence may take longer than the one before the silence. So a peer that is
	 * much slower than was assumed gets to answer a prompt, and then its speed is known. */
	double slower = PEERS_SLOWER << MIN(x->n_silences, (uint32_t)PEERS_DOUBLINGS);
	double ns = ns_per_token(x), most = 1e18;

	/* A peer without a speed is taken to be as slow as the slowest peer that has one. */
	for (uint32_t i = 0; i < PEERS_MAX && !(x->computed_tokens > 0); i++)
		ns = MAX(ns, ns_per_token(&p->peers[i]));
	if (!(ns > 0))
		ns = 1e9 / PEERS_TOKENS_PER_S;
	ns = slower * ns * (double)n_tokens +
	     (double)MAX(PEERS_PATIENCE_NS, PEERS_MISSED * p->heartbeat_ns);
	return (uint64_t)MIN(ns, most);
}

static void begin_silence(struct peer *x, uint64_t now_ns)
{
	uint64_t ns = PEERS_SILENT_NS;

	for (uint32_t i = 0; i < x->n_silences && ns < PEERS_SILENT_MAX_NS; i++)
		ns *= 2;
	x->n_silences++;
	x->silent_ns = now_ns + MIN(ns, PEERS_SILENT_MAX_NS);
}

bool peers_overdue(struct peers *p, uint32_t peer, uint64_t since_ns, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];

	if (x->answered_ns > since_ns)
		return false;
	begin_silence(x, now_ns);
	return true;
}

bool peers_drags(struct peers *p, uint32_t peer, uint64_t now_ns)
{
	struct peer *x = &p->peers[peer];

	if (x->silent_ns)
		return false;
	x->drags = true;
	begin_silence(x, now_ns);
	return true;
}
