#include "daemon/lifecycle.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/log.h"

/* Two parts have to be loaded: the engine with its model, and the tokenizer with the chat template. lifecycle_expect
 * adds more. */
enum { PARTS = 2 };

struct lifecycle {
	_Atomic int state;
	_Atomic int missing; /* parts not yet loaded */
	int signal_fd, event_fd;
	pthread_mutex_t lock;
	struct err error; /* guarded by lock until state is FAILED, then constant */
};

int lifecycle_new(struct lifecycle **ret, struct err *e)
{
	struct lifecycle *l = calloc(1, sizeof(*l));
	struct sigaction hup;
	sigset_t set;

	if (!l)
		return err_no_memory(e);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	/* nohup starts a program with SIGHUP ignored, so that it outlives its terminal. */
	if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN)
		sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&l->lock, NULL);
	atomic_init(&l->missing, PARTS);
	atomic_init(&l->state, LIFECYCLE_LOADING);
	if (l->signal_fd < 0 || l->event_fd < 0) {
		int code = errno;

		lifecycle_free(l);
		return err_set(e, code, "cannot watch signals: %s", strerror(code));
	}
	*ret = l;
	return 0;
}

void lifecycle_free(struct lifecycle *l)
{
	if (!l)
		return;
	if (l->signal_fd >= 0)
		close(l->signal_fd);
	if (l->event_fd >= 0)
		close(l->event_fd);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

enum lifecycle_state lifecycle_state(const struct lifecycle *l)
{
	return (enum lifecycle_state)atomic_load(&l->state);
}

void lifecycle_notify(struct lifecycle *l)
{
	uint64_t one = 1;
	ssize_t r = write(l->event_fd, &one, sizeof(one));

	/* The write fails only when the counter is full. While the counter is not 0, main does not sleep. */
	(void)r;
}

/* Makes the state `to` if it is `from`, and leaves any other state as it is, so that FAILED is final. Wakes main. */
static void advance(struct lifecycle *l, int from, int to)
{
	atomic_compare_exchange_strong(&l->state, &from, to);
	lifecycle_notify(l);
}

void lifecycle_loaded(struct lifecycle *l)
{
	if (atomic_fetch_sub(&l->missing, 1) == 1)
		advance(l, LIFECYCLE_LOADING, LIFECYCLE_READY);
}

void lifecycle_expect(struct lifecycle *l)
{
	atomic_fetch_add(&l->missing, 1);
}

void lifecycle_drain(struct lifecycle *l)
{
	advance(l, LIFECYCLE_LOADING, LIFECYCLE_DRAINING);
	advance(l, LIFECYCLE_READY, LIFECYCLE_DRAINING);
}

void lifecycle_fail(struct lifecycle *l, const struct err *e)
{
	pthread_mutex_lock(&l->lock);
	if (atomic_load(&l->state) != LIFECYCLE_FAILED) {
		l->error = *e;
		atomic_store(&l->state, LIFECYCLE_FAILED);
	}
	pthread_mutex_unlock(&l->lock);
	lifecycle_notify(l);
}

const struct err *lifecycle_error(const struct lifecycle *l)
{
	return &l->error;
}

bool lifecycle_wait(struct lifecycle *l, uint64_t timeout_ns)
{
	struct pollfd fds[] = {{.fd = l->signal_fd, .events = POLLIN},
			       {.fd = l->event_fd, .events = POLLIN}};
	struct signalfd_siginfo info;
	uint64_t ms = CEIL_DIV(timeout_ns, 1000000u), count;
	ssize_t r;

	if (poll(fds, ARRAY_SIZE(fds), (int)MIN(ms, (uint64_t)3600000)) <= 0)
		return false;
	r = read(l->event_fd, &count, sizeof(count));
	(void)r;
	if (read(l->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return false;
	/* The log says why the program ends. A signal of the terminal comes from process 0. */
	log_info("SIG%s from process %u", sigabbrev_np((int)info.ssi_signo), info.ssi_pid);
	/* A terminal that is closed may send SIGHUP twice: from the shell, and from the system. */
	return info.ssi_signo != SIGHUP || lifecycle_state(l) < LIFECYCLE_DRAINING;
}

void lifecycle_tell(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sd_notify(0, text);
}
