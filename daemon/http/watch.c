#include "daemon/http/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/problem.h"
#include "daemon/http/handshakes.h"
#include "daemon/lifecycle.h"
#include "daemon/threads.h"

#define SECOND 1000000000ull
#define MS     1000000ull

/* The first five are limits: the connection of a client that takes longer is cut. */
static const uint64_t headers_ns = 30 * SECOND; /* from accept to the end of the first headers */
static const uint64_t piece_ns = 20 * SECOND;	/* for each PIECE bytes of a body */
/* the same for a large body, while others are refused because large bodies take all the memory that they may */
static const uint64_t piece_full_ns = 2 * SECOND;
/* to read an answer without a call; also from the end of a request to the end of the next headers */
static const uint64_t idle_ns = 120 * SECOND;
/* from hanging up without a call until libmicrohttpd has answered the request, or has closed the connection */
static const uint64_t leaving_ns = SECOND;
/* while the daemon drains: for a client to take some of an answer that is ready */
static const uint64_t stalled_ns = 10 * SECOND;
/* a stream that was silent for so long gets an SSE comment */
static const uint64_t comment_ns = 15 * SECOND;
/* The least time between two calls of malloc_trim, because a thread that needs new memory during such a call has to
 * wait. */
static const uint64_t trim_ns = 4 * SECOND;

enum {
	EVENTS_MAX = 64,
	TICK_MS = 1000,
	PIECE = 64 << 10,
	/* when there is room for at most so many more connections, or for an eighth of the limit if that is less, a
	 * waiting one gives way to each new one */
	SPARE = 16,
	/* at most watch.most / ADDRESS_SHARE connections of one client's address that is not trusted may wait */
	ADDRESS_SHARE = 8,
};

struct connection {
	uint64_t number;
	int fd;
	bool admin; /* it came to --admin-port */
	struct address from;
	struct call *call; /* borrowed from watch_answering to watch_idle; NULL: none */
	/* The connection is cut if by then the present part of its request has not arrived (the headers, or the next
	 * PIECE bytes of the body), or if its answer without a call was not read. 0: no limit, because it has a call
	 * or is cut already. */
	uint64_t deadline_ns;
	uint64_t since_ns; /* without a call: the time since which it waits */
	/* pieces of the body, PIECE bytes each, that have arrived; not used once the body is whole */
	uint64_t pieces;
	uint64_t left_ns; /* when the client hung up; 0: it has not */
	/* the bytes of its answer that its client's system had not confirmed at the last tick, and when they became
	 * fewer (look_whether_taken) */
	int unsent;
	uint64_t taken_ns;
	/* of watch_await or watch_admit, while the connection is suspended by it; resume NULL: it is not */
	void (*resume)(void *mc);
	void *mc;
	/* of its handshake: it waits for a turn; it has one, of which the http thread does not know yet; what the turn
	 * has taken at its beginning (handshakes_begin); 0: there is none */
	bool held, admitted;
	uint64_t turn_ns;
	bool ended; /* its call was ended (end_unread), or it was cut while the daemon drained */
	bool is_cut;
};

struct watch {
	pthread_t thread;
	struct server *server;
	int epoll_fd, wake_fd;
	_Atomic bool quit;
	pthread_mutex_t lock;
	/* guarded by lock */
	struct connection **by_fd; /* [n_fds] NULL: no connection */
	size_t n_fds;
	/* for the main port and for --admin-port (connection.admin): connections in the table, and their limit */
	size_t n[2], most[2];
	struct handshakes handshakes[2];
	size_t n_held[2]; /* of these connections those that wait for a turn (connection.held) */
	struct networks trusted;
	uint64_t last_number;
	bool closing; /* no connection may be suspended any more (watch_await) */
	/* only the watch thread uses the rest: when memory was given back last; what `slowest` counts */
	uint64_t trimmed_ns;
	uint64_t unread_of[OWNER_SHARES];
};

/* An event's 64 bits have the connection's descriptor in the lower FD_BITS, and its number above them. */
enum { FD_BITS = 24 };

static uint64_t event_key(const struct connection *c)
{
	return c->number << FD_BITS | (uint64_t)c->fd;
}

/* Ends the wait of watch_await or watch_admit, if there is one. Call with the lock held. */
static void end_await(struct watch *w, struct connection *c)
{
	w->n_held[c->admin] -= c->held;
	c->held = false;
	if (c->resume)
		c->resume(c->mc);
	c->resume = NULL;
}

/* Ends a connection: libmicrohttpd sees the end of file, or cannot write, and closes it. Call with the lock held. */
static void cut(struct watch *w, struct connection *c)
{
	shutdown(c->fd, SHUT_RDWR);
	c->deadline_ns = 0;
	c->is_cut = true;
	/* The event that its client has hung up may have come already, and there is no second one. */
	if (c->held)
		end_await(w, c);
}

/* Returns the time since which a connection waits for its client; 0: it does not wait, or it is cut already. */
static uint64_t waits_since(const struct connection *c)
{
	if (c->is_cut)
		return 0;
	return c->call ? atomic_load(&c->call->waits_ns) : c->since_ns;
}

/* Asks for an event, one alone, when the client hangs up, and when one of further `events` is there. The event is
 * level-triggered, so that a client that has already left is reported at once. Call with the lock held. False: there
 * will be no event. This can happen only for lack of the kernel's memory, or of the watches that a user may have. Then
 * a client that leaves goes unnoticed until data are sent to it. */
static bool arm(struct watch *w, struct connection *c, int operation, uint32_t events)
{
	struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT | events,
				 .data.u64 = event_key(c)};

	if (epoll_ctl(w->epoll_fd, operation, c->fd, &ev) == 0)
		return true;
	log_warning("cannot watch a connection: %s", strerror(errno));
	return false;
}

/* Notes the events of a connection: bytes that watch_await waits for, or that its client has hung up. Returns the call
 * that has lost its client, a new reference; NULL: there is none, or the events belong to a former connection.
 *
 * A request without a call may be whole already, and its client may still read the answer. So at first only the
 * receiving side of the connection is shut down. From this libmicrohttpd learns that no more bytes come, but now and
 * then it overlooks the shutdown. A connection that is still there a second later (leaving_ns), and has no call by
 * then, is cut. */
static struct call *note_events(struct watch *w, int fd, uint64_t number, uint32_t events)
{
	struct connection *c;
	struct call *call = NULL;

	pthread_mutex_lock(&w->lock);
	c = (size_t)fd < w->n_fds ? w->by_fd[fd] : NULL;
	if (c && c->number == number)
		end_await(w, c);
	if (c && c->number == number && events == EPOLLIN) {
		arm(w, c, EPOLL_CTL_MOD, 0);
	} else if (c && c->number == number) {
		c->left_ns = clock_now_ns();
		if (c->call)
			call = call_ref(c->call);
		else
			shutdown(c->fd, SHUT_RD);
	}
	pthread_mutex_unlock(&w->lock);
	return call;
}

static void take_event(struct watch *w, const struct epoll_event *ev) ON(role_watch)
{
	uint64_t key = ev->data.u64, count;
	struct call *call;

	if (!key) { /* the event of wake_fd: no connection has number 0 */
		(void)!read(w->wake_fd, &count, sizeof(count));
		return;
	}
	call = note_events(w, (int)(key & ((1u << FD_BITS) - 1)), key >> FD_BITS, ev->events);
	if (!call)
		return;
	log_debug("%s: the client left", call->id);
	call_abort(call);
	call_unref(call);
}

/* Returns how much a connection's unread answer counts: the bytes that are kept of it (call.kept), as many times as
 * whole seconds have begun since bytes were ready that the client has not taken (call.waits_ns), once at least. 0: it
 * has no call, or its call was ended already (connection.ended). */
static uint64_t unread_weight(const struct connection *c, uint64_t now)
{
	uint64_t since;

	if (!c || !c->call || c->ended)
		return 0;
	since = atomic_load(&c->call->waits_ns);
	return atomic_load(&c->call->kept) *
	       (1 + (since && since < now ? (now - since) / SECOND : 0));
}

/* While answers take more memory than they may, finds the connection whose answer is to be ended first: of the owner
 * whose unread answers count most together (unread_weight), the one that counts most. So many small answers of one
 * client are ended before a large one of another. NULL: they take no more, or nothing is kept. *ret_bytes: the bytes
 * that are kept of all answers that were not ended. Call with the lock held. */
static struct connection *slowest(struct watch *w, uint64_t now, uint64_t *ret_bytes)
{
	struct connection *slowest = NULL;
	uint64_t most = 0, most_of_owner = 0;

	*ret_bytes = 0;
	memset(w->unread_of, 0, sizeof(w->unread_of));
	for (size_t fd = 0; fd < w->n_fds; fd++) {
		const struct connection *c = w->by_fd[fd];
		uint64_t weight = unread_weight(c, now);

		if (!weight)
			continue;
		*ret_bytes += atomic_load(&c->call->kept);
		w->unread_of[server_share(w->server, c->call->owner)] += weight;
	}
	if (*ret_bytes <= w->server->options.answer_memory)
		return NULL;
	for (size_t fd = 0; fd < w->n_fds; fd++) {
		struct connection *c = w->by_fd[fd];
		uint64_t weight = unread_weight(c, now), of_owner;

		if (!weight)
			continue;
		of_owner = w->unread_of[server_share(w->server, c->call->owner)];
		if (of_owner < most_of_owner || (of_owner == most_of_owner && weight <= most))
			continue;
		slowest = c;
		most = weight;
		most_of_owner = of_owner;
	}
	return slowest;
}

/* Ends answers that are not read, until the other answers take no more memory than --answer-memory. The client gets an
 * error, as its answer or at the end of its stream, if that is still possible (call_give_up); otherwise its connection
 * is cut. Call with the lock held. */
static void end_unread(struct watch *w, uint64_t now)
{
	const uint64_t max = w->server->options.answer_memory;
	struct connection *c;
	struct err e = {0};
	uint64_t bytes;

	while ((c = slowest(w, now, &bytes))) {
		log_warning("%s: ended, because clients have not read %" PRIu64
			    " bytes of answers, %" PRIu64 " of them of this one",
			    c->call->id, bytes, atomic_load(&c->call->kept));
		atomic_fetch_add(&w->server->metrics.unread, 1);
		err_set(&e, PROBLEM_UNREAD,
			"clients have not read %" PRIu64 " bytes of answers, and at most %" PRIu64
			" are kept (--answer-memory); ask for less, or try again later",
			bytes, max);
		c->ended = true;
		if (!call_give_up(c->call, &e))
			cut(w, c);
	}
}

static bool is_late(const struct connection *c, uint64_t now, bool refused)
{
	uint64_t sooner = refused && c->pieces ? piece_ns - piece_full_ns : 0;

	return c->deadline_ns &&
	       ((c->left_ns && now > c->left_ns + leaving_ns) || now > c->deadline_ns - sooner);
}

/* While a client has not taken bytes that are ready: looks whether it takes those before them. The system may have
 * megabytes of the answer that the client is still taking, though libmicrohttpd can send no more. Then the bytes that
 * the client's system has not confirmed (SIOCOUTQ) become fewer. */
static void look_whether_taken(struct connection *c, uint64_t now)
{
	int unsent = 0;

	if (!c->call || !waits_since(c))
		return;
	if (ioctl(c->fd, SIOCOUTQ, &unsent) == 0 && unsent < c->unsent)
		c->taken_ns = now;
	c->unsent = unsent;
}

/* Returns whether the client has taken nothing of a ready answer for stalled_ns. While the daemon drains, such a client
 * would hold it for all of --drain-timeout. An answer that was ended by an error (end_unread) counts as well. */
static bool is_stalled(const struct connection *c, uint64_t now)
{
	const uint64_t since = c->call ? waits_since(c) : 0;

	return since && now > MAX(since, c->taken_ns) + stalled_ns;
}

static void tick(struct watch *w) ON(role_watch)
{
	const bool refused = atomic_exchange(&w->server->bodies_refused, false);
	const bool draining = lifecycle_state(w->server->lifecycle) == LIFECYCLE_DRAINING;
	uint64_t now = clock_now_ns();

	if (now > w->trimmed_ns + trim_ns && atomic_exchange(&w->server->trim, false)) {
		malloc_trim(0);
		w->trimmed_ns = now;
	}
	pthread_mutex_lock(&w->lock);
	for (size_t port = 0; port < ARRAY_SIZE(w->handshakes); port++)
		handshakes_forget(&w->handshakes[port]);
	end_unread(w, now);
	for (size_t fd = 0; fd < w->n_fds; fd++) {
		struct connection *c = w->by_fd[fd];

		if (c && c->call)
			call_tick(c->call, now > comment_ns ? now - comment_ns : 0);
		if (c)
			look_whether_taken(c, now);
		if (c && is_late(c, now, refused))
			cut(w, c);
		if (c && draining && is_stalled(c, now)) {
			log_warning(
				"%s: ended, because the server is shutting down and the client reads nothing",
				c->call->id);
			c->ended = true;
			cut(w, c);
		}
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- turns of handshakes ---- */

static size_t share_of(const struct watch *w, const struct connection *c)
{
	return server_share(w->server, address_number(&c->from));
}

/* Returns the connection of this port whose turn is next (handshakes.h): of one client's the oldest. Call with the lock
 * held, while one is held. */
static struct connection *next_held(struct watch *w, bool admin)
{
	struct connection *next = NULL;
	uint64_t least = UINT64_MAX;

	for (size_t fd = 0; fd < w->n_fds; fd++) {
		struct connection *c = w->by_fd[fd];
		uint64_t had;

		if (!c || !c->held || c->admin != admin)
			continue;
		had = w->handshakes[admin].had_ns[share_of(w, c)];
		if (had < least || (had == least && c->number < next->number)) {
			next = c;
			least = had;
		}
	}
	return next;
}

static void begin_turn(struct watch *w, struct connection *c)
{
	c->turn_ns = handshakes_begin(&w->handshakes[c->admin], share_of(w, c));
}

/* Gives turns to connections of this port that wait for one, as far as there is credit. Returns the nanoseconds until
 * there is some for the next one; UINT64_MAX: none waits. Call with the lock held. */
static uint64_t give_turns(struct watch *w, bool admin)
{
	uint64_t wait;

	while (w->n_held[admin]) {
		struct connection *c;

		wait = handshakes_wait(&w->handshakes[admin], clock_now_ns());
		if (wait)
			return wait;
		c = next_held(w, admin);
		begin_turn(w, c);
		c->admitted = true;
		end_await(w, c);
	}
	return UINT64_MAX;
}

/* Gives turns at both ports. Returns the milliseconds until there may be more; at most until the next tick. */
static int give_all_turns(struct watch *w)
{
	uint64_t ns = TICK_MS * MS;

	pthread_mutex_lock(&w->lock);
	ns = MIN(ns, give_turns(w, false));
	ns = MIN(ns, give_turns(w, true));
	pthread_mutex_unlock(&w->lock);
	return (int)CEIL_DIV(ns, MS);
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	struct epoll_event events[EVENTS_MAX];
	uint64_t next_tick = clock_now_ns() + TICK_MS * 1000000ull;

	role_begin(&role_watch);
	while (!atomic_load(&w->quit)) {
		int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, give_all_turns(w));

		for (int i = 0; i < n; i++)
			take_event(w, &events[i]);
		if (clock_now_ns() >= next_tick) {
			tick(w);
			next_tick = clock_now_ns() + TICK_MS * 1000000ull;
		}
	}
	return NULL;
}

static void release(struct watch *w)
{
	if (w->epoll_fd >= 0)
		close(w->epoll_fd);
	if (w->wake_fd >= 0)
		close(w->wake_fd);
	pthread_mutex_destroy(&w->lock);
	free(w->by_fd);
	free(w);
}

int watch_start(struct watch **ret, struct server *s, struct err *e)
{
	struct watch *w = calloc(1, sizeof(*w));
	struct epoll_event ev = {.events = EPOLLIN};
	int r;

	if (!w)
		return err_no_memory(e);
	w->server = s;
	for (size_t port = 0; port < ARRAY_SIZE(w->handshakes); port++)
		handshakes_init(&w->handshakes[port], clock_now_ns());
	pthread_mutex_init(&w->lock, NULL);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll_fd < 0 || w->wake_fd < 0 ||
	    epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &ev) < 0) {
		r = errno;
		release(w);
		return err_set(e, r, "cannot watch connections: %s", strerror(r));
	}
	r = pthread_create(&w->thread, NULL, watch_main, w);
	if (r) {
		release(w);
		return err_set(e, r, "cannot start the watch thread: %s", strerror(r));
	}
	*ret = w;
	return 0;
}

/* Ends the thread's sleep. */
static void wake(struct watch *w)
{
	const uint64_t one = 1;

	(void)!write(w->wake_fd, &one, sizeof(one));
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	atomic_store(&w->quit, true);
	wake(w);
	pthread_join(w->thread, NULL);
	release(w);
}

/* Makes the table large enough for this descriptor. Call with the lock held. -EINVAL: the descriptor does not fit into
 * FD_BITS; -ENOMEM. */
static int reserve_fd(struct watch *w, int fd)
{
	size_t n = w->n_fds ? w->n_fds : 64;
	struct connection **table;

	if (fd < 0 || fd >= 1 << FD_BITS)
		return -EINVAL;
	if ((size_t)fd < w->n_fds)
		return 0;
	while (n <= (size_t)fd)
		n *= 2;
	table = reallocarray(w->by_fd, n, sizeof(struct connection *));
	if (!table)
		return -ENOMEM;
	memset(table + w->n_fds, 0, (n - w->n_fds) * sizeof(struct connection *));
	w->by_fd = table;
	w->n_fds = n;
	return 0;
}

/* Counts the connections of this port that wait: those of the client with the address `of`, or all if `of` is NULL. If
 * these are `waiting` or more, cuts the one that has waited longest. Call with the lock held. */
static void make_room(struct watch *w, bool admin, const struct address *of, size_t waiting)
{
	struct connection *oldest = NULL;
	uint64_t oldest_since = UINT64_MAX;
	size_t n = 0;

	for (size_t fd = 0; fd < w->n_fds; fd++) {
		struct connection *c = w->by_fd[fd];
		uint64_t since = c ? waits_since(c) : 0;

		if (!since || c->admin != admin || (of && !address_same_client(&c->from, of)))
			continue;
		n++;
		if (since < oldest_since) {
			oldest = c;
			oldest_since = since;
		}
	}
	if (oldest && n >= waiting)
		cut(w, oldest);
}

/* Begins a wait for the client, which may take `ns` nanoseconds. Call with the lock held. */
static void begin_wait(struct connection *c, uint64_t ns)
{
	c->since_ns = clock_now_ns();
	c->deadline_ns = c->since_ns + ns;
	c->pieces = 0;
}

void watch_limit(struct watch *w, bool admin, size_t most, const struct networks *trusted)
{
	pthread_mutex_lock(&w->lock);
	w->most[admin] = most;
	w->trusted = *trusted;
	pthread_mutex_unlock(&w->lock);
}

struct connection *watch_open(struct watch *w, bool admin, int fd, const struct sockaddr *from)
{
	struct connection *c = calloc(1, sizeof(*c));
	size_t most;

	if (!c)
		return NULL;
	c->fd = fd;
	c->admin = admin;
	c->from = address_of(from);
	pthread_mutex_lock(&w->lock);
	if (reserve_fd(w, fd) < 0) {
		pthread_mutex_unlock(&w->lock);
		free(c);
		return NULL;
	}
	most = w->most[admin];
	if (w->n[admin] + MIN((size_t)SPARE, most / 8) >= most)
		make_room(w, admin, NULL, 1);
	else if (!admin && !networks_have(&w->trusted, &c->from))
		make_room(w, admin, &c->from, MAX(most / ADDRESS_SHARE, (size_t)1));
	c->number = ++w->last_number;
	w->by_fd[fd] = c;
	w->n[admin]++;
	begin_wait(c, headers_ns);
	arm(w, c, EPOLL_CTL_ADD, 0);
	pthread_mutex_unlock(&w->lock);
	return c;
}

void watch_close(struct watch *w, struct connection *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&w->lock);
	w->by_fd[c->fd] = NULL;
	w->n[c->admin]--;
	w->n_held[c->admin] -= c->held;
	if (c->admitted)
		handshakes_end(&w->handshakes[c->admin], share_of(w, c), c->turn_ns, 0);
	/* Fails if the descriptor was never added, which does no harm. */
	epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	pthread_mutex_unlock(&w->lock);
	free(c);
}

void watch_receiving(struct watch *w, struct connection *c, uint64_t received)
{
	/* Only the connection's http thread changes `pieces`, so this thread may read `pieces` without the lock. */
	if (received && received / PIECE == c->pieces)
		return;
	pthread_mutex_lock(&w->lock);
	c->since_ns = clock_now_ns();
	c->deadline_ns = c->since_ns + piece_ns;
	c->pieces = received / PIECE;
	pthread_mutex_unlock(&w->lock);
}

void watch_answering(struct watch *w, struct connection *c, struct call *call)
{
	pthread_mutex_lock(&w->lock);
	c->call = call;
	c->ended = false;
	c->unsent = 0;
	c->taken_ns = 0;
	if (call) {
		c->deadline_ns = 0;
		arm(w, c, EPOLL_CTL_MOD, 0);
	} else {
		begin_wait(c, idle_ns);
	}
	pthread_mutex_unlock(&w->lock);
}

void watch_idle(struct watch *w, struct connection *c)
{
	pthread_mutex_lock(&w->lock);
	begin_wait(c, idle_ns);
	c->call = NULL;
	arm(w, c, EPOLL_CTL_MOD, 0);
	pthread_mutex_unlock(&w->lock);
}

void watch_await(struct watch *w, struct connection *c, void (*suspend)(void *mc),
		 void (*resume)(void *mc), void *mc)
{
	pthread_mutex_lock(&w->lock);
	if (!w->closing && arm(w, c, EPOLL_CTL_MOD, EPOLLIN)) {
		suspend(mc);
		c->resume = resume;
		c->mc = mc;
	} else if (!w->closing) {
		cut(w, c); /* libmicrohttpd would be in a busy loop */
	}
	pthread_mutex_unlock(&w->lock);
}

enum watch_turn watch_admit(struct watch *w, struct connection *c, void (*suspend)(void *mc),
			    void (*resume)(void *mc), void *mc)
{
	enum watch_turn turn = WATCH_GO;
	bool first = false;

	pthread_mutex_lock(&w->lock);
	if (w->closing || c->is_cut) {
		turn = WATCH_GONE;
	} else if (c->admitted) {
		c->admitted = false;
	} else if (!w->n_held[c->admin] &&
		   !handshakes_wait(&w->handshakes[c->admin], clock_now_ns())) {
		begin_turn(w, c);
	} else {
		turn = WATCH_HELD;
		suspend(mc);
		c->resume = resume;
		c->mc = mc;
		c->held = true;
		first = !w->n_held[c->admin]++;
		atomic_fetch_add(&w->server->metrics.tls_delayed, 1);
	}
	pthread_mutex_unlock(&w->lock);
	if (first)
		wake(w);
	return turn;
}

void watch_spent(struct watch *w, struct connection *c, uint64_t ns)
{
	pthread_mutex_lock(&w->lock);
	handshakes_end(&w->handshakes[c->admin], share_of(w, c), c->turn_ns, ns);
	c->turn_ns = 0;
	/* It may have taken less than was thought. */
	(void)give_turns(w, c->admin);
	pthread_mutex_unlock(&w->lock);
}

void watch_close_calls(struct watch *w)
{
	pthread_mutex_lock(&w->lock);
	w->closing = true;
	for (size_t fd = 0; fd < w->n_fds; fd++) {
		struct connection *c = w->by_fd[fd];

		if (c && c->call)
			call_close(c->call);
		if (c)
			end_await(w, c);
	}
	pthread_mutex_unlock(&w->lock);
}
