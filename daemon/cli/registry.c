/*
 * `tigon registry`: prefill workers announce themselves here, and decode workers ask for the list of them.
 *
 * The messages are ANNOUNCE, LIST and PEERS (protocol/transfer/message.h). The registry lists a worker that it accepts
 * for as long as the worker's ANNOUNCE says, at most a minute. A LIST asks for the workers of one role and of one model
 * or all models. The registry keeps nothing on disk. Prefill workers announce themselves three times within the time
 * that they name, so after a restart of the registry the list is complete again within about a third of this time;
 * meanwhile workers that have found each other go on. The registry sends nothing but answers, and drops messages that
 * it cannot read. Memory is bounded: of each peer only a few messages wait unread, and the list has at most
 * WIRE_PEERS_MAX workers.
 */
#include "daemon/cli/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "daemon/transfer/port.h"
#include "protocol/transfer/registry_table.h"
#include "protocol/transfer/wire.h"

enum {
	LARGEST = 1024,	 /* bytes of a frame; an ANNOUNCE has 288 */
	QUEUE = 4,	 /* most messages that wait, from each peer and to it */
	HEARD_MAX = 256, /* most messages that are read before time and signals are looked at */
};

struct registry_options {
	const char *listen, *transfer_key;
};

struct registry {
	struct transfer_keys keys;
	bool encrypted; /* keys were given */
	int stop_fd;	/* signalfd */
	struct port *port;
	struct registry_table *table;
	struct buf out; /* the frame that is being sent */
	uint64_t now_ns;
	bool full; /* a log line has said that the table is full */
	struct log_limit said_version, said_full;
	struct log_limit said_moves;  /* of lines about workers that come and go */
	struct log_limit said_losses; /* of lines about workers that are not heard of any more */
};

#define AT(member) offsetof(struct registry_options, member)

static const struct option_def options[] = {
	{"listen", "ADDRESS", OPTION_TEXT, AT(listen), .initial_text = "none, it is required",
	 .text = "the address to listen at: tcp://HOST:PORT"},
	{"transfer-key", "FILE", OPTION_TEXT, AT(transfer_key),
	 .initial_text = "none, which loopback alone allows",
	 .text = "its key pair and the workers' public keys (tigon transfer-key)"},
};

/* ---- messages ---- */

static const char *role_name(uint32_t role)
{
	return role == WIRE_PREFILL ? "prefill" : "decode";
}

/* Makes the checks of an announced worker that wire_parse cannot make. Returns the reason why the worker must not be
 * listed, or NULL. */
static const char *reason_to_refuse(const struct registry *g, const struct wire_peer *p)
{
	static const uint8_t none[WIRE_CURVE_KEY];
	char key[TRANSFER_KEY_TEXT];

	if (transfer_endpoint_check(p->endpoint, false, NULL) < 0)
		return "no worker can connect to its address";
	if (!g->encrypted)
		return memcmp(p->curve_key, none, sizeof(none))
			       ? "it has keys, and the registry has none"
			       : NULL;
	/* The sender's key was checked when it connected; but a sender may announce another worker. */
	return zmq_z85_encode(key, p->curve_key, sizeof(p->curve_key)) &&
			       transfer_keys_allow(&g->keys, key)
		       ? NULL
		       : "its key is not on the list";
}

/* Returns whether a line about a worker that came or went may be written now; more as in log_due. A sender can announce
 * a worker and take it back as often as it likes. */
static bool may_say(struct registry *g, char more[LOG_MORE_MAX])
{
	return log_due_often(&g->said_moves, g->now_ns, more);
}

static void hear_announce(struct registry *g, const struct wire_announce *a)
{
	char more[LOG_MORE_MAX];
	const char *why = reason_to_refuse(g, &a->peer), *role = role_name(a->role);

	if (why) {
		log_debug("registry: %s worker %s is not listed: %s", role, a->peer.endpoint, why);
		return;
	}
	switch (registry_table_announce(g->table, a, g->now_ns)) {
	case REGISTRY_NOTHING: break;
	case REGISTRY_CAME:
		if (may_say(g, more))
			log_info("registry: %s worker %s has come%s", role, a->peer.endpoint, more);
		break;
	case REGISTRY_REPLACED:
		if (may_say(g, more))
			log_info("registry: %s worker %s was started again%s", role,
				 a->peer.endpoint, more);
		break;
	case REGISTRY_LEFT:
		if (may_say(g, more))
			log_info("registry: %s worker %s has left%s", role, a->peer.endpoint, more);
		break;
	case REGISTRY_FULL:
		if (!g->full && log_due(&g->said_full, g->now_ns, more))
			log_warning("registry: there are %d workers already, no more are taken%s",
				    WIRE_PEERS_MAX, more);
		g->full = true;
		return;
	}
	g->full &= registry_table_count(g->table) == WIRE_PEERS_MAX;
}

static void hear_list(struct registry *g, uint32_t link, const struct wire_list *asked)
{
	struct wire_message m = {.type = WIRE_PEERS};
	struct err e = {0};

	registry_table_list(g->table, asked, g->now_ns, &m.peers);
	buf_reset(&g->out);
	if (wire_encode(&m, &g->out, &e) < 0)
		log_error("registry: %s", e.text);
	else if (port_send(g->port, link, g->out.data, g->out.len, NULL) < 0)
		log_debug("registry: an answer could not be sent");
}

static void hear(struct registry *g, uint32_t link, zmq_msg_t *head)
{
	char more[LOG_MORE_MAX];
	struct wire_message m;
	struct err e = {0};
	int r = wire_parse(zmq_msg_data(head), zmq_msg_size(head), &m, &e);

	if (r == -EPROTONOSUPPORT && log_due(&g->said_version, clock_now_ns(), more))
		log_warning("registry: a worker is not listed: %s%s", e.text, more);
	else if (r < 0)
		log_debug("registry: a message that cannot be read: %s", e.text);
	else if (m.type == WIRE_ANNOUNCE)
		hear_announce(g, &m.announce);
	else if (m.type == WIRE_LIST)
		hear_list(g, link, &m.list);
	else
		log_debug("registry: a %s, which it ignores", wire_type_name(m.type));
}

static void take_messages(struct registry *g)
{
	zmq_msg_t head, body;
	uint32_t link;

	for (int i = 0; i < HEARD_MAX && port_receive(g->port, &link, &head, &body); i++) {
		hear(g, link, &head);
		/* Forget the connection; only the table remembers workers. */
		port_forget(g->port, link);
		zmq_msg_close(&head);
		zmq_msg_close(&body);
	}
}

static void expire_workers(struct registry *g)
{
	struct wire_announce gone;
	char more[LOG_MORE_MAX];

	while (registry_table_expire(g->table, g->now_ns, &gone)) {
		if (log_due_often(&g->said_losses, g->now_ns, more))
			log_info("registry: %s worker %s is not heard of any more%s",
				 role_name(gone.role), gone.peer.endpoint, more);
		g->full = false;
	}
}

static bool got_signal(const struct registry *g)
{
	struct signalfd_siginfo s;

	if (read(g->stop_fd, &s, sizeof(s)) != (ssize_t)sizeof(s))
		return false;
	log_info("%s from process %u", s.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM", s.ssi_pid);
	return true;
}

static void serve(struct registry *g)
{
	while (!got_signal(g)) {
		uint64_t next;

		g->now_ns = clock_now_ns();
		expire_workers(g);
		take_messages(g);
		next = registry_table_deadline(g->table);
		port_wait(g->port, g->stop_fd,
			  next <= g->now_ns ? 0
					    : (int)MIN((next - g->now_ns) / 1000000 + 1, 1000u));
	}
}

/* ---- start ---- */

/* Blocks SIGTERM and SIGINT, and opens stop_fd, which tells of them. To be called before ZeroMQ starts threads, because
 * these inherit the signal mask. */
static int watch_signals(struct registry *g, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	g->stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return g->stop_fd < 0 ? err_set(e, errno, "cannot watch signals: %s", strerror(errno)) : 0;
}

static int check_options(const struct registry_options *o, struct err *e)
{
	if (!o->listen)
		return err_set(e, EINVAL,
			       "--listen tcp://HOST:PORT is required; --help lists the options");
	return transfer_endpoint_option("--listen", o->listen, true, o->transfer_key, e);
}

static int open_registry(struct registry *g, const struct registry_options *o, struct err *e)
{
	struct port_config port = {.largest = LARGEST, .queue = QUEUE};
	char bound[TRANSFER_ENDPOINT_MAX];
	int r = watch_signals(g, e);

	if (r == 0 && o->transfer_key) {
		r = transfer_keys_open(o->transfer_key, &g->keys, e);
		if (r < 0)
			err_prefix(e, "--transfer-key");
		g->encrypted = r == 0;
	}
	if (r == 0 && !(g->table = registry_table_new()))
		r = err_no_memory(e);
	port.keys = g->encrypted ? &g->keys : NULL;
	if (r == 0)
		r = port_open(&port, &g->port, e);
	if (r == 0)
		r = port_listen(g->port, o->listen, bound, e);
	if (r == 0)
		log_info("registry: waiting for workers at %s%s", bound,
			 g->encrypted ? "" : ", without keys");
	return r;
}

static void close_registry(struct registry *g)
{
	port_close(g->port);
	registry_table_free(g->table);
	buf_release(&g->out);
	transfer_keys_release(&g->keys);
	if (g->stop_fd >= 0)
		close(g->stop_fd);
}

int cli_registry(int argc, char **argv, struct err *e)
{
	struct registry g = {.stop_fd = -1};
	struct registry_options o = {0};
	int r = option_table_command(options, ARRAY_SIZE(options),
				     "registry --listen ADDRESS [--transfer-key FILE]", argc, argv,
				     &o, e);

	buf_init(&g.out, WIRE_FRAME_MAX);
	if (r == 0)
		r = check_options(&o, e);
	if (r == 0)
		r = open_registry(&g, &o, e);
	if (r == 0)
		serve(&g);
	close_registry(&g);
	return r;
}
