#include "daemon/transfer/directory.h"

#include <errno.h>
#include <string.h>

/* The longest time for which the registry remembers one of our announcements. */
#define TTL_NS ((uint64_t)15 * 1000000000)

/* The longest pause before the next message when the registry could not be reached. */
#define AGAIN_NS ((uint64_t)200 * 1000000)

/* An announcement is sent TIMES times before the registry would forget the first one. A peer that the registry names
 * no more is disconnected when it has not been Registered for TIMES heartbeats. */
enum { TIMES = 3 };

_Static_assert((int)PORT_OUTGOING > (int)PEERS_MAX, "a connection is left for the registry");

static uint64_t ttl_ns(const struct directory *d)
{
	return MIN(TIMES * d->worker->config.heartbeat_ns, TTL_NS);
}

static int fill_self(struct directory *d, const char *endpoint, struct err *e)
{
	const struct worker *w = d->worker;
	const struct transfer_keys *k = w->config.keys;
	struct wire_peer *p = &d->self;

	if (strlen(endpoint) >= sizeof(p->endpoint))
		return err_set(e, ENAMETOOLONG, "%s has more than %zu bytes", endpoint,
			       sizeof(p->endpoint) - 1);
	memcpy(p->endpoint, endpoint, strlen(endpoint));
	memcpy(p->worker, w->hello.worker, WIRE_ID);
	if (k && !zmq_z85_decode(p->curve_key, k->public_key))
		return err_set(e, EINVAL, "the public key cannot be decoded");
	return 0;
}

int directory_open(struct directory *d, struct worker *w, struct prefill_peers *peers,
		   struct err *e)
{
	const struct transfer_config *c = &w->config;
	int r = 0;

	d->worker = w;
	d->peers = peers;
	d->link = PORT_NONE;
	if (!c->registry)
		return 0;
	if (!peers)
		r = fill_self(d, c->announce ? c->announce : c->listener->bound, e);
	if (r < 0)
		return r;
	r = port_connect(w->port, c->registry, NULL, &d->link, e);
	if (r < 0)
		err_prefix(e, "--registry");
	else
		worker_key_assumed(w, "--registry", c->registry);
	return r;
}

/* ---- a prefill worker ---- */

static int announce(struct directory *d, uint64_t ttl) ON(role_transfer)
{
	struct wire_message m = {
		.type = WIRE_ANNOUNCE,
		.announce = {.role = WIRE_PREFILL,
			     .ttl_ms = (uint32_t)(ttl / 1000000),
			     .peer = d->self},
	};

	/* The model is known only after config.identify, which the transfer thread calls first. */
	memcpy(m.announce.peer.model, d->worker->hello.model, WIRE_ID);
	return worker_say(d->worker, d->link, &m, NULL);
}

void directory_leave(struct directory *d)
{
	if (d->link == PORT_NONE || d->peers || d->left)
		return;
	/* If this message is lost, the registry forgets the worker when its last announcement has expired. */
	(void)!announce(d, 0);
	d->left = true;
}

/* ---- a decode worker ---- */

/* Asks for the prefill workers of all models, so that the log can say when all of them have another model. */
static int ask(struct directory *d) ON(role_transfer)
{
	const struct wire_message m = {.type = WIRE_LIST, .list = {.role = WIRE_PREFILL}};

	return worker_say(d->worker, d->link, &m, NULL);
}

static bool is_registered(const struct directory *d, uint32_t peer)
{
	struct peer_info i;

	peers_get(d->peers->receiving.peers, peer, &i);
	return i.state == PEER_REGISTERED;
}

/* Returns the first peer, but not `except`, that has this endpoint, or that is Registered (peers.h) with this worker
 * id. endpoint or worker may be NULL. PEERS_MAX: there is none. */
static uint32_t find(const struct directory *d, const char *endpoint, const uint8_t *worker,
		     uint32_t except)
{
	const struct peers *peers = d->peers->receiving.peers;

	for (uint64_t left = peers_mask(peers); left; left &= left - 1) {
		uint32_t peer = (uint32_t)__builtin_ctzll(left);
		struct peer_info i;

		peers_get(peers, peer, &i);
		if (peer != except &&
		    ((endpoint && !strcmp(i.endpoint, endpoint)) ||
		     (worker && i.state == PEER_REGISTERED && !memcmp(i.worker, worker, WIRE_ID))))
			return peer;
	}
	return PEERS_MAX;
}

/* Checks whether this decode worker may connect to a worker of the list. Fills key with the listed worker's public key,
 * if we have keys. -EINVAL: the listed address is wrong. -EACCES: our key file does not allow the listed key there; or
 * we have no keys, and the listed worker has one or is not on this machine. */
static int check_worker(const struct directory *d, const struct wire_peer *p,
			char key[TRANSFER_KEY_TEXT], struct err *e)
{
	static const uint8_t none[WIRE_CURVE_KEY];
	const struct transfer_keys *k = d->worker->config.keys;
	int r = transfer_endpoint_check(p->endpoint, false, e);

	if (r < 0)
		return r;
	if (!k && !transfer_endpoint_is_local(p->endpoint))
		return err_set(e, EACCES, "%s: it is not loopback, and there is no --transfer-key",
			       p->endpoint);
	if (!k && memcmp(p->curve_key, none, sizeof(none)) != 0)
		return err_set(e, EACCES, "%s: it has keys, and there is no --transfer-key",
			       p->endpoint);
	if (k && (!zmq_z85_encode(key, p->curve_key, sizeof(p->curve_key)) ||
		  !transfer_keys_allow_at(k, key, p->endpoint)))
		return err_set(e, EACCES, "%s: its key is not on our list", p->endpoint);
	return 0;
}

/* Returns whether a line about the registry's lists may be written now; more as in log_due. A registry can list one
 * thing and its contrary as often as it likes. */
static bool may_say(struct directory *d, char more[LOG_MORE_MAX])
{
	return log_due_often(&d->said, d->worker->now_ns, more);
}

/* Connects to a listed worker and returns its peer. PEERS_MAX with a sentence: the worker is not usable. */
static uint32_t connect_to(struct directory *d, const struct wire_peer *p, struct err *e)
	ON(role_transfer)
{
	char key[TRANSFER_KEY_TEXT], more[LOG_MORE_MAX];
	uint32_t peer;

	if (check_worker(d, p, key, e) < 0 ||
	    prefill_peers_add(d->peers, p->endpoint, d->worker->config.keys ? key : NULL, &peer,
			      e) < 0)
		return PEERS_MAX;
	d->entries[peer] = (struct directory_entry){.found = true, .listed = true};
	memcpy(d->entries[peer].key, p->curve_key, WIRE_CURVE_KEY);
	if (may_say(d, more))
		log_info("transfer: the registry knows of %s%s", p->endpoint, more);
	return peer;
}

static void disconnect(struct directory *d, uint32_t peer, const char *why) ON(role_transfer)
{
	d->entries[peer].found = false;
	prefill_peers_remove(d->peers, peer, why);
}

/* Connects to a peer of --prefill with the key that the registry lists for it. Does nothing if there is no key file, if
 * the key file names the peer's address or does not allow that key, or if the peer is Registered (peers.h). */
static void take_key(struct directory *d, uint32_t peer, const struct wire_peer *p)
	ON(role_transfer)
{
	struct worker *w = d->worker;
	char key[TRANSFER_KEY_TEXT], more[LOG_MORE_MAX];

	if (!w->config.keys || is_registered(d, peer) ||
	    transfer_keys_name(w->config.keys, p->endpoint) || check_worker(d, p, key, NULL) < 0)
		return;
	if (port_set_key(w->port, d->peers->receiving.link_of_peer[peer], key) && may_say(d, more))
		log_info("transfer: connecting to %s with the key that the registry knows%s",
			 p->endpoint, more);
}

/* Handles one worker of the list. Returns its peer if that peer is known from the registry. PEERS_MAX: an option named
 * the worker, it is connected under another address, or e says why it is not usable. */
static uint32_t take_listed(struct directory *d, const struct wire_peer *p, struct err *e)
	ON(role_transfer)
{
	uint32_t peer = find(d, p->endpoint, NULL, PEERS_MAX);
	const struct directory_entry *entry;

	if (peer == PEERS_MAX)
		return find(d, NULL, p->worker, PEERS_MAX) == PEERS_MAX ? connect_to(d, p, e)
									: PEERS_MAX;
	entry = &d->entries[peer];
	if (!entry->found) {
		take_key(d, peer, p);
		return PEERS_MAX;
	}
	if (!memcmp(entry->key, p->curve_key, sizeof(entry->key)) || is_registered(d, peer))
		return peer;
	disconnect(d, peer, "it has another key now");
	return connect_to(d, p, e);
}

/* Returns whether a peer is idle and is the same worker as another peer, so that its connection is not needed. */
static bool is_double(struct directory *d, uint32_t peer) ON(role_transfer)
{
	const struct receiving *r = &d->peers->receiving;
	struct peer_info i;

	peers_get(r->peers, peer, &i);
	return i.state == PEER_REGISTERED && !receiving_is_busy(r, peer) &&
	       find(d, NULL, i.worker, peer) != PEERS_MAX;
}

/* Logs how many workers of other models the list has, when they are more than in the last list. They are normal in a
 * fleet of several models, so the line is a warning only if the list has no worker of our model. */
static void note_others(struct directory *d, uint32_t n, uint32_t n_listed) ON(role_transfer)
{
	char more[LOG_MORE_MAX];

	if (n > d->n_other && may_say(d, more))
		log_write(n == n_listed ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
			  "transfer: the registry knows %u prefill worker%s of another model, "
			  "--page-size, --dtype or --kv-dtype: %s used%s",
			  n, n == 1 ? "" : "s", n == 1 ? "it is not" : "none of them is", more);
	d->n_other = n;
}

/* Returns whether a peer is in the last list, is Registered, or was Registered or added less than TIMES heartbeats
 * ago. */
static bool is_there(const struct directory *d, uint32_t peer)
{
	const struct worker *w = d->worker;
	struct peer_info i;

	peers_get(d->peers->receiving.peers, peer, &i);
	return d->entries[peer].listed || i.state == PEER_REGISTERED ||
	       w->now_ns - MIN(i.away_ns, w->now_ns) < TIMES * w->config.heartbeat_ns;
}

static void forget_missing(struct directory *d) ON(role_transfer)
{
	for (uint32_t peer = 0; peer < PEERS_MAX; peer++)
		if (d->entries[peer].found && !is_there(d, peer))
			disconnect(d, peer, "it is gone");
}

static void forget_doubles(struct directory *d) ON(role_transfer)
{
	for (uint32_t peer = 0; peer < PEERS_MAX; peer++)
		if (d->entries[peer].found && is_double(d, peer))
			disconnect(d, peer, "it is connected under another address");
}

static void hear_peers(struct directory *d, const struct wire_peers *list) ON(role_transfer)
{
	bool listed[PEERS_MAX + 1] = {false};
	uint32_t n_unfit = 0, n_other = 0;
	char more[LOG_MORE_MAX];
	struct err e = {0};

	for (uint32_t i = 0; i < list->n_peers; i++) {
		struct err why = {0};

		if (memcmp(list->peers[i].model, d->worker->hello.model, WIRE_ID) != 0) {
			n_other++;
			continue;
		}
		listed[take_listed(d, &list->peers[i], &why)] = true;
		if (why.code) {
			n_unfit++;
			e = why;
		}
	}
	/* logged only when there are more unusable workers than in the last list */
	if (n_unfit > d->n_unfit && may_say(d, more))
		log_warning("transfer: the registry knows %u worker%s that cannot be used; %s%s",
			    n_unfit, n_unfit == 1 ? "" : "s", e.text, more);
	d->n_unfit = n_unfit;
	note_others(d, n_other, list->n_peers);
	for (uint32_t peer = 0; peer < PEERS_MAX; peer++)
		d->entries[peer].listed = listed[peer];
	forget_doubles(d);
}

void directory_hear(struct directory *d, const struct wire_message *m)
{
	if (m->type == WIRE_PEERS && d->peers)
		hear_peers(d, &m->peers);
	else
		log_debug("transfer: the registry sent a %s, which is ignored",
			  wire_type_name(m->type));
}

/* ---- time ---- */

/* Logs that the registry cannot be reached, and that it is there again, each once. */
static void note_reach(struct directory *d, bool reached) ON(role_transfer)
{
	const struct worker *w = d->worker;

	if (reached) {
		if (d->said_away)
			log_info("transfer: the registry %s is there", w->config.registry);
		d->away_ns = 0;
		d->said_away = false;
	} else if (!d->away_ns) {
		d->away_ns = w->now_ns;
	} else if (!d->said_away && w->now_ns - d->away_ns >= WORKER_AWAY_NS) {
		log_warning(
			"transfer: the registry %s cannot be reached: no process listens there%s",
			w->config.registry,
			w->config.keys ? ", our key is not on its list, or its key is not the one "
					 "that our list has"
				       : ", or it wants a --transfer-key");
		d->said_away = true;
	}
}

uint64_t directory_tick(struct directory *d)
{
	struct worker *w = d->worker;
	bool prefill = !d->peers;
	int r;

	if (d->link == PORT_NONE)
		return UINT64_MAX;
	if (prefill && atomic_load(&w->draining))
		directory_leave(d);
	if (d->left)
		return UINT64_MAX;
	if (!prefill)
		forget_missing(d);
	if (d->due_ns > w->now_ns)
		return d->due_ns;
	r = prefill ? announce(d, ttl_ns(d)) : ask(d);
	note_reach(d, r == 0);
	worker_reached(w, d->link, r == 0);
	d->due_ns = w->now_ns + (r < 0	   ? MIN(AGAIN_NS, w->config.heartbeat_ns)
				 : prefill ? ttl_ns(d) / TIMES
					   : w->config.heartbeat_ns);
	return d->due_ns;
}
