#include "daemon/http/certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/private.h"
#include "daemon/threads.h"

static const uint64_t look_ns = 1000000000; /* between two looks at the files */
/* certificates_free waits so long for the thread: both files are read in less, unless their file system hangs */
static const uint64_t end_ns = 1000000000;

enum {
	CERT_MAX = 1 << 20, /* the most bytes of the file of the certificate */
	KEY_MAX = 64 << 10, /* the most bytes of the file of the key */
	CERT = 0,
	KEY = 1,
	FILES = 2,
};

struct certificate {
	gnutls_certificate_credentials_t credentials;
	time_t expires;
	unsigned
		users; /* guarded by certificates.lock: connections, and the store if this is its newest pair */
};

/* The facts that show whether a file has changed. All zeros: there is no such file. */
struct stamp {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec written, changed;
};

struct certificates {
	const char *paths[FILES];
	pthread_mutex_t lock;
	pthread_cond_t moved; /* `ending` or `ended` was set */
	/* guarded by lock */
	struct certificate *newest;
	bool follows;	    /* there is a thread */
	bool ending, ended; /* the thread is to end; it has ended */
	bool abandoned;	    /* nobody waits for the thread any more: it frees this struct */
	pthread_t thread;
	/* Only the thread uses these: the files when they were read last, also if the pair was not good, and when they
	 * were looked at last. */
	struct stamp read[FILES], seen[FILES];
};

/* ---- reading ---- */

static int add_line(void *arg, char *line, struct err *e)
{
	struct buf *b = arg;

	buf_puts(b, line);
	buf_putc(b, '\n');
	return b->failed ? err_set(e, EFBIG, "the file has more than %d bytes", KEY_MAX) : 0;
}

static gnutls_datum_t datum(const struct buf *b)
{
	return (gnutls_datum_t){.data = (unsigned char *)buf_str(b), .size = (unsigned)b->len};
}

/* Finds the time until which the certificate is valid: the first one of the file. */
static int read_expiry(const char *path, const gnutls_datum_t *text, time_t *ret, struct err *e)
{
	gnutls_x509_crt_t *list;
	unsigned n;
	int r = gnutls_x509_crt_list_import2(&list, &n, text, GNUTLS_X509_FMT_PEM, 0);

	if (r < 0)
		return err_set(e, EINVAL, "--tls-cert: %s: there is no certificate in PEM: %s",
			       path, gnutls_strerror(r));
	*ret = gnutls_x509_crt_get_expiration_time(list[0]);
	for (unsigned i = 0; i < n; i++)
		gnutls_x509_crt_deinit(list[i]);
	gnutls_free(list);
	return 0;
}

static void release(struct certificate *c)
{
	gnutls_certificate_free_credentials(c->credentials);
	free(c);
}

/* Makes a pair of the texts of both files. */
static int make(const struct certificates *s, const struct buf *cert, const struct buf *key,
		struct certificate **ret, struct err *e)
{
	const gnutls_datum_t cert_text = datum(cert), key_text = datum(key);
	struct certificate *c = calloc(1, sizeof(*c));
	int r;

	if (!c || gnutls_certificate_allocate_credentials(&c->credentials) < 0) {
		free(c);
		return err_no_memory(e);
	}
	c->users = 1;
	r = read_expiry(s->paths[CERT], &cert_text, &c->expires, e);
	if (!r) {
		r = gnutls_certificate_set_x509_key_mem2(c->credentials, &cert_text, &key_text,
							 GNUTLS_X509_FMT_PEM, NULL, 0);
		if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
			r = err_set(e, EINVAL,
				    "--tls-key: %s: it is not the key of the certificate in %s",
				    s->paths[KEY], s->paths[CERT]);
		else if (r < 0)
			r = err_set(e, EINVAL,
				    "--tls-key: %s: there is no key in PEM without a password: %s",
				    s->paths[KEY], gnutls_strerror(r));
	}
	if (r < 0) {
		release(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int read_files(const struct certificates *s, struct certificate **ret, struct err *e)
{
	struct buf cert, key;
	int r;

	buf_init(&cert, CERT_MAX);
	buf_init(&key, KEY_MAX);
	r = file_read(AT_FDCWD, s->paths[CERT], s->paths[CERT], &cert, e);
	if (r < 0)
		err_prefix(e, "--tls-cert");
	/* With all its room at once the text of the key is never copied, and so is wiped as a whole. */
	if (!r && buf_reserve(&key, KEY_MAX) < 0)
		r = err_no_memory(e);
	if (!r && (r = private_lines(s->paths[KEY], add_line, &key, e)) < 0)
		err_prefix(e, "--tls-key");
	if (!r)
		r = make(s, &cert, &key, ret, e);
	if (key.data)
		explicit_bzero(key.data, key.cap);
	buf_release(&key);
	buf_release(&cert);
	return r;
}

/* Logs until when the newest pair is valid. */
static void tell(const struct certificates *s, const struct certificate *c, const char *when)
{
	struct tm day;
	char until[32];

	strftime(until, sizeof(until), "%Y-%m-%d %H:%M UTC", gmtime_r(&c->expires, &day));
	if (c->expires < time(NULL))
		log_warning("--tls-cert: %s%s: the certificate has expired on %s", s->paths[CERT],
			    when, until);
	else
		log_info("--tls-cert: %s%s: the certificate is valid until %s", s->paths[CERT],
			 when, until);
}

/* ---- changes ---- */

static void look(const struct certificates *s, struct stamp *ret)
{
	for (size_t i = 0; i < FILES; i++) {
		struct stat st;

		ret[i] = (struct stamp){0};
		if (stat(s->paths[i], &st) == 0)
			ret[i] = (struct stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim,
						st.st_ctim};
	}
}

static bool same_time(const struct timespec *x, const struct timespec *y)
{
	return x->tv_sec == y->tv_sec && x->tv_nsec == y->tv_nsec;
}

static bool same(const struct stamp *x, const struct stamp *y)
{
	for (size_t i = 0; i < FILES; i++)
		if (x[i].dev != y[i].dev || x[i].ino != y[i].ino || x[i].size != y[i].size ||
		    !same_time(&x[i].written, &y[i].written) ||
		    !same_time(&x[i].changed, &y[i].changed))
			return false;
	return true;
}

/* Reads both files again if one of them has changed since it was read, and has not changed any more since the last
 * call: a file that is being written is left alone until the next call. */
static void refresh(struct certificates *s) ON(role_certificate)
{
	struct certificate *c, *old;
	struct stamp now[FILES];
	bool settled;
	struct err e;

	look(s, now);
	settled = same(now, s->seen);
	memcpy(s->seen, now, sizeof(now));
	if (!settled || same(now, s->read))
		return;
	memcpy(s->read, now, sizeof(now));
	if (read_files(s, &c, &e) < 0) {
		log_warning("%s; the earlier certificate stays in use", e.text);
		return;
	}
	pthread_mutex_lock(&s->lock);
	old = s->newest;
	s->newest = c;
	pthread_mutex_unlock(&s->lock);
	certificate_drop(s, old);
	tell(s, c, " has changed");
}

/* ---- the store ---- */

static void dispose(struct certificates *s)
{
	release(s->newest);
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void *follow(void *arg)
{
	struct certificates *s = arg;
	bool abandoned;

	role_begin(&role_certificate);
	pthread_mutex_lock(&s->lock);
	while (!s->ending) {
		const struct timespec until = clock_timespec(clock_now_ns() + look_ns);

		if (pthread_cond_timedwait(&s->moved, &s->lock, &until) != ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&s->lock);
		refresh(s);
		pthread_mutex_lock(&s->lock);
	}
	s->ended = true;
	abandoned = s->abandoned;
	pthread_cond_signal(&s->moved);
	pthread_mutex_unlock(&s->lock);
	if (abandoned)
		dispose(s);
	return NULL;
}

int certificates_follow(struct certificates *s, struct err *e)
{
	int r = pthread_create(&s->thread, NULL, follow, s);

	if (r)
		return err_set(e, r, "cannot start the certificate thread: %s", strerror(r));
	s->follows = true;
	return 0;
}

/* Ends the thread, if there is one. False: it hangs in the file system, and frees s when it goes on. */
static bool unfollow(struct certificates *s)
{
	const struct timespec until = clock_timespec(clock_now_ns() + end_ns);
	bool ended;

	if (!s->follows)
		return true;
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	pthread_cond_signal(&s->moved);
	while (!s->ended && pthread_cond_timedwait(&s->moved, &s->lock, &until) == 0)
		;
	ended = s->ended;
	s->abandoned = !ended;
	if (!ended)
		pthread_detach(s->thread);
	pthread_mutex_unlock(&s->lock);
	if (ended)
		pthread_join(s->thread, NULL);
	return ended;
}

int certificates_open(const char *cert_path, const char *key_path, struct certificates **ret,
		      struct err *e)
{
	struct certificates *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;
	int r;

	if (!s)
		return err_no_memory(e);
	s->paths[CERT] = cert_path;
	s->paths[KEY] = key_path;
	/* Before the files are read: a change while they are read is seen later. */
	look(s, s->read);
	memcpy(s->seen, s->read, sizeof(s->seen));
	r = read_files(s, &s->newest, e);
	if (r < 0) {
		free(s);
		return r;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->moved, &attr);
	pthread_condattr_destroy(&attr);
	tell(s, s->newest, "");
	*ret = s;
	return 0;
}

void certificates_free(struct certificates *s)
{
	if (s && unfollow(s))
		dispose(s);
}

struct certificate *certificates_take(struct certificates *s)
{
	struct certificate *c;

	pthread_mutex_lock(&s->lock);
	c = s->newest;
	c->users++;
	pthread_mutex_unlock(&s->lock);
	return c;
}

void certificate_drop(struct certificates *s, struct certificate *c)
{
	unsigned left;

	pthread_mutex_lock(&s->lock);
	left = --c->users;
	pthread_mutex_unlock(&s->lock);
	if (!left)
		release(c);
}

gnutls_certificate_credentials_t certificate_credentials(const struct certificate *c)
{
	return c->credentials;
}
