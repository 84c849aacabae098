/*
 * What a worker has to do with the registry (tigon registry). A prefill worker announces itself, so often that the registry
 * may miss it twice before it forgets it. A decode worker asks who is there, calls those that it does not know, and hangs up
 * on those that are gone from the list and do not answer either: the list alone ends no connection, so that a registry
 * that is down, or was started again and knows nobody yet, costs nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "daemon/transfer/transfer_internal.h"

#define TTL_NS	 ((uint64_t)15 * 1000000000) /* at most: of an announcement */
#define AGAIN_NS ((uint64_t)200 * 1000000)   /* when the registry could not be reached */

/* Announcements within a ttl, and heartbeats of the longest one. */
enum { TIMES = 3 };

_Static_assert((int)PORT_CALLS > (int)PEERS_MAX, "a call is left for the registry");

static uint64_t ttl_ns(const struct transfer *t)
{
	return MIN(TIMES * t->config.heartbeat_ns, TTL_NS);
}

int directory_open(struct transfer *t, struct err *e)
{
	struct directory *d = &t->directory;
	int r;

	d->port = PORT_NONE;
	if (!t->config.registry)
		return 0;
	r = port_call(t->port, t->config.registry, NULL, &d->port, e);
	if (r < 0)
		err_prefix(e, "--registry");
	else
		transfer_key_assumed(t, "--registry", t->config.registry);
	return r;
}

/* ---- a prefill worker ---- */

int directory_announce_as(struct transfer *t, const char *endpoint, struct err *e)
{
	struct wire_peer *p = &t->directory.self;
	const struct transfer_keys *k = t->config.keys;

	if (strlen(endpoint) >= sizeof(p->endpoint))
		return err_set(e, ENAMETOOLONG, "%s has more than %zu bytes", endpoint,
			       sizeof(p->endpoint) - 1);
	memcpy(p->endpoint, endpoint, strlen(endpoint));
	if (k && !zmq_z85_decode(p->curve_key, k->public_key))
		return err_set(e, EINVAL, "the public key is none");
	return 0;
}

static int announce(struct transfer *t, uint64_t ttl) ON(role_transfer)
{
	struct wire_message m = {
		.type = WIRE_ANNOUNCE,
		.announce = {.role = WIRE_PREFILL,
			     .ttl_ms = (uint32_t)(ttl / 1000000),
			     .peer = t->directory.self},
	};

	memcpy(m.announce.peer.worker, t->hello.worker, WIRE_ID);
	memcpy(m.announce.peer.model, t->hello.model, WIRE_ID);
	return transfer_say(t, t->directory.port, &m, NULL);
}

void directory_leave(struct transfer *t)
{
	struct directory *d = &t->directory;

	if (d->port == PORT_NONE || !t->config.prefill || d->left)
		return;
	/* When it cannot be told, it forgets by itself. */
	(void)!announce(t, 0);
	d->left = true;
}

/* ---- a decode worker ---- */

static int ask(struct transfer *t) ON(role_transfer)
{
	/* Of any model: that there are only others is worth a line. */
	const struct wire_message m = {.type = WIRE_LIST, .list = {.role = WIRE_PREFILL}};

	return transfer_say(t, t->directory.port, &m, NULL);
}

static bool is_registered(const struct transfer *t, uint32_t peer)
{
	struct peer_info i;

	peers_get(t->peers, peer, &i);
	return i.state == PEER_REGISTERED;
}

/* The peer with this endpoint, or a registered one that is this worker; PEERS_MAX: none. Either may be NULL. */
static uint32_t find(const struct transfer *t, const char *endpoint, const uint8_t *worker)
{
	uint64_t mask = peers_mask(t->peers);
	uint32_t peer = 0;

	for (; peer < PEERS_MAX; peer++) {
		struct peer_info i;

		if (!(mask >> peer & 1))
			continue;
		peers_get(t->peers, peer, &i);
		if ((endpoint && !strcmp(i.endpoint, endpoint)) ||
		    (worker && i.state == PEER_REGISTERED && !memcmp(i.worker, worker, WIRE_ID)))
			break;
	}
	return peer;
}

/* What the registry says is no reason to talk to whom the list of keys has not, or beyond this machine without keys. */
static int check_worker(const struct transfer *t, const struct wire_peer *w,
			char key[TRANSFER_KEY_TEXT], struct err *e)
{
	static const uint8_t none[WIRE_CURVE_KEY];
	const struct transfer_keys *k = t->config.keys;
	int r = transfer_endpoint_check(w->endpoint, false, e);

	if (r < 0)
		return r;
	if (!k && !transfer_endpoint_is_local(w->endpoint))
		return err_set(e, EACCES, "%s: it is not loopback, and there is no --transfer-key",
			       w->endpoint);
	if (!k)
		return memcmp(w->curve_key, none, sizeof(none))
			       ? err_set(e, EACCES,
					 "%s: it has keys, and there is no --transfer-key",
					 w->endpoint)
			       : 0;
	if (!zmq_z85_encode(key, w->curve_key, sizeof(w->curve_key)) ||
	    !transfer_keys_allow_at(k, key, w->endpoint))
		return err_set(e, EACCES, "%s: its key is not on our list", w->endpoint);
	return 0;
}

/* Calls it; PEERS_MAX and a sentence: it cannot be. */
static uint32_t call(struct transfer *t, const struct wire_peer *w, struct err *e) ON(role_transfer)
{
	char key[TRANSFER_KEY_TEXT];
	uint32_t peer;

	if (check_worker(t, w, key, e) < 0 ||
	    calls_add(t, w->endpoint, t->config.keys ? key : NULL, &peer, e) < 0)
		return PEERS_MAX;
	t->directory.found[peer] = (struct found){.is = true};
	memcpy(t->directory.found[peer].key, w->curve_key, WIRE_CURVE_KEY);
	log_info("transfer: the registry knows of %s", w->endpoint);
	return peer;
}

static void hang_up(struct transfer *t, uint32_t peer, const char *why) ON(role_transfer)
{
	t->directory.found[peer].is = false;
	calls_remove(t, peer, why);
}

/* One of --prefill, of whose key our list says nothing: the registry knows it. */
static void take_key(struct transfer *t, uint32_t peer, const struct wire_peer *w) ON(role_transfer)
{
	char key[TRANSFER_KEY_TEXT];
	struct err e = {0};

	if (!t->config.keys || is_registered(t, peer) ||
	    transfer_keys_name(t->config.keys, w->endpoint) || check_worker(t, w, key, &e) < 0)
		return;
	if (port_take_key(t->port, t->ports[peer], key))
		log_info("transfer: %s is called with the key that the registry knows",
			 w->endpoint);
}

/* One of the list. Its number, when it was found by the registry; PEERS_MAX: there is nothing to remember, or e says why it
 * is not called. */
static uint32_t look_at(struct transfer *t, const struct wire_peer *w, struct err *e)
	ON(role_transfer)
{
	uint32_t peer = find(t, w->endpoint, NULL);
	struct found *f;

	if (peer == PEERS_MAX)
		/* The same under another address need not be called twice. */
		return find(t, NULL, w->worker) == PEERS_MAX ? call(t, w, e) : PEERS_MAX;
	f = &t->directory.found[peer];
	if (!f->is) {
		take_key(t, peer, w);
		return PEERS_MAX;
	}
	if (!memcmp(f->key, w->curve_key, sizeof(f->key)) || is_registered(t, peer))
		return peer;
	hang_up(t, peer, "it has another key now");
	return call(t, w, e);
}

/* Whether a peer that is found is another one as well, and nothing is under way with it. */
static bool is_double(struct transfer *t, uint32_t peer) ON(role_transfer)
{
	struct peer_info i, k;
	uint64_t mask = peers_mask(t->peers);

	peers_get(t->peers, peer, &i);
	if (i.state != PEER_REGISTERED || calls_busy(t, peer))
		return false;
	for (uint32_t other = 0; other < PEERS_MAX; other++) {
		if (!(mask >> other & 1) || other == peer)
			continue;
		peers_get(t->peers, other, &k);
		if (k.state == PEER_REGISTERED && !memcmp(i.worker, k.worker, WIRE_ID))
			return true;
	}
	return false;
}

/* Each time that there are more of them, and not at every heartbeat. A fleet may have several models, but then each has somebody. */
static void note_others(struct transfer *t, uint32_t n, uint32_t n_listed) ON(role_transfer)
{
	struct directory *d = &t->directory;

	if (n > d->n_other)
		log_write(n == n_listed ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
			  "transfer: the registry knows %u prefill worker%s of another model, "
			  "--page-size or --dtype: %s called",
			  n, n == 1 ? "" : "s", n == 1 ? "it is not" : "none of them is");
	d->n_other = n;
}

static void hear_peers(struct transfer *t, const struct wire_peers *list) ON(role_transfer)
{
	struct directory *d = &t->directory;
	bool listed[PEERS_MAX + 1] = {false};
	uint32_t n_unfit = 0, n_other = 0;
	struct err e = {0};

	for (uint32_t i = 0; i < list->n_peers; i++) {
		struct err why = {0};
		uint32_t peer;

		if (memcmp(list->peers[i].model, t->hello.model, WIRE_ID) != 0) {
			n_other++;
			continue;
		}
		peer = look_at(t, &list->peers[i], &why);
		listed[peer] = true;
		if (why.code) {
			n_unfit++;
			e = why;
		}
	}
	/* Once, and not at every heartbeat. */
	if (n_unfit > d->n_unfit)
		log_warning("transfer: of those that the registry knows of, %u are not called; %s",
			    n_unfit, e.text);
	d->n_unfit = n_unfit;
	note_others(t, n_other, list->n_peers);
	for (uint32_t peer = 0; peer < PEERS_MAX; peer++) {
		struct found *f = &d->found[peer];

		if (!f->is)
			continue;
		f->missed = listed[peer] ? 0 : f->missed + 1;
		if (is_double(t, peer))
			hang_up(t, peer, "it is called under another address");
		else if (f->missed >= TIMES && !is_registered(t, peer))
			hang_up(t, peer, "it is gone");
	}
}

void directory_hear(struct transfer *t, const struct wire_message *m)
{
	if (m->type == WIRE_PEERS && !t->config.prefill)
		hear_peers(t, &m->peers);
	else
		log_debug("transfer: a %s of the registry is nothing for us",
			  wire_type_name(m->type));
}

/* ---- time ---- */

/* Each once: that it cannot be reached, and that it is there again. */
static void note_reach(struct transfer *t, bool reached) ON(role_transfer)
{
	struct directory *d = &t->directory;

	if (reached) {
		if (d->said_away)
			log_info("transfer: the registry %s is there", t->config.registry);
		d->away_ns = 0;
		d->said_away = false;
	} else if (!d->away_ns) {
		d->away_ns = t->now_ns;
	} else if (!d->said_away && t->now_ns - d->away_ns >= AWAY_NS) {
		log_warning("transfer: the registry %s cannot be reached: nobody listens there%s",
			    t->config.registry,
			    t->config.keys ? ", our key is not on its list, or it has another one "
					     "than ours says"
					   : ", or only for who has a --transfer-key");
		d->said_away = true;
	}
}

uint64_t directory_tick(struct transfer *t)
{
	struct directory *d = &t->directory;
	bool prefill = t->config.prefill;
	int r;

	if (d->port == PORT_NONE)
		return UINT64_MAX;
	if (prefill && atomic_load(&t->draining))
		directory_leave(t);
	if (d->left)
		return UINT64_MAX;
	if (d->due_ns > t->now_ns)
		return d->due_ns;
	r = prefill ? announce(t, ttl_ns(t)) : ask(t);
	note_reach(t, r == 0);
	transfer_reached(t, d->port, r == 0);
	d->due_ns = t->now_ns + (r < 0	   ? MIN(AGAIN_NS, t->config.heartbeat_ns)
				 : prefill ? ttl_ns(t) / TIMES
					   : t->config.heartbeat_ns);
	return d->due_ns;
}
