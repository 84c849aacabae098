#include "daemon/http/tls.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/http/suspend.h"
#include "daemon/threads.h"

enum {
	/* the most bytes of a message of the handshake; the longest that clients send, their first one, has some 2
	 * KB */
	MESSAGE_MAX = 16 << 10,
	CONTENT_HANDSHAKE =
		22, /* the first byte of each record of a handshake (RFC 8446, section 5.1) */
};

struct tls {
	gnutls_session_t session; /* libmicrohttpd's */
	struct certificates *store;
	struct certificate *certificate;
	struct watch *watch;
	struct connection *connection;
	struct MHD_Connection *mc;
	int fd;
	bool begun;	/* a byte has been read */
	bool in_record; /* the header of a record has been read, but not all of the record */
	bool settled;	/* the client's part of the handshake is complete */
	/* within a turn of the handshake (handshakes.h): when it began; 0: there is none */
	uint64_t turn_ns;
};

/* Takes the place of libmicrohttpd's own certificate, without which it does not start. A session that has none of
 * tls_begin gets none, so its handshake fails. */
static int no_certificate(gnutls_session_t session, const gnutls_datum_t *issuers, int n_issuers,
			  const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
			  gnutls_pcert_st **ret, unsigned *ret_n, gnutls_privkey_t *ret_key)
{
	return -1;
}

/* TLS 1.2 and 1.3, with ephemeral keys and authenticated ciphers alone. X25519 comes first, because most clients begin
 * with it: with another curve they would have to begin again (HelloRetryRequest). */
static char priorities[] =
	"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:"
	"+ECDHE-RSA:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:"
	"+GROUP-SECP521R1:-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:"
	"-MAC-ALL:+AEAD:%SERVER_PRECEDENCE";

struct MHD_OptionItem tls_options[] = {
	{MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
	{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)no_certificate},
	{MHD_OPTION_END, 0, NULL},
};

/* Tells a client whose first bytes are not TLS that they should be. The rest of its request is read first, if it is not
 * long: with unread bytes the connection would be closed by a reset, and the client could lose the answer. */
static void refuse_plain(const struct tls *t)
{
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
				     "Content-Length: 52\r\nConnection: close\r\n\r\n"
				     "This port is for TLS: the URL is https://HOST:PORT/\n";
	char rest[4096];

	(void)!recv(t->fd, rest, sizeof(rest), MSG_DONTWAIT);
	(void)!send(t->fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Notes that GnuTLS got n of the `max` bytes that it wanted. It wants the header of a record first, and then the rest
 * of that record.
 *
 * A record may have no data: a KeyUpdate, or an empty one. Behind such a record GnuTLS returns to libmicrohttpd as if
 * the socket were empty, and libmicrohttpd waits for an edge of epoll. A request that has come in the same segment
 * would wait until its client sends more. So if more bytes are there already, the connection is made ready again. */
static void note_record(struct tls *t, size_t n, size_t max)
{
	char next;

	if (n < max)
		return;
	t->in_record = !t->in_record;
	if (t->settled && !t->in_record && recv(t->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
		connection_yield(t->mc);
}

static bool would_block(int code)
{
	return code == EAGAIN || code == EWOULDBLOCK;
}

static void end_turn(struct tls *t)
{
	if (t->turn_ns)
		watch_spent(t->watch, t->connection, clock_now_ns() - t->turn_ns);
	t->turn_ns = 0;
}

/* Begins a turn of the handshake, if its next bytes are there. A first byte of something else needs none: it is
 * refused. Returns whether GnuTLS may have the bytes; else *ret is the result of `pull`, with errno. */
static bool begin_turn(struct tls *t, ssize_t *ret)
{
	unsigned char next;

	if (recv(t->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 1 ||
	    (!t->begun && next != CONTENT_HANDSHAKE))
		return true;
	switch (watch_admit(t->watch, t->connection, connection_suspend, connection_resume,
			    t->mc)) {
	case WATCH_GO: t->turn_ns = clock_now_ns(); return true;
	case WATCH_HELD:
		errno = EAGAIN;
		*ret = -1;
		return false;
	default: *ret = 0; return false;
	}
}

/* GnuTLS calls this function for the bytes of the client, as recv. */
static ssize_t pull(gnutls_transport_ptr_t pointer, void *to, size_t max)
{
	struct tls *t = pointer;
	ssize_t n;
	int code;

	role_begin(&role_http);
	if (!t->settled && !t->turn_ns && !begin_turn(t, &n))
		return n;
	n = recv(t->fd, to, max, MSG_DONTWAIT);
	code = errno;
	if (n < 0 && would_block(code) && !t->settled) {
		end_turn(t);
		watch_await(t->watch, t->connection, connection_suspend, connection_resume, t->mc);
	}
	if (n > 0 && !t->begun && *(const unsigned char *)to != CONTENT_HANDSHAKE) {
		refuse_plain(t);
		n = 0;
	}
	t->begun = true;
	if (n > 0)
		note_record(t, (size_t)n, max);
	errno = code;
	return n;
}

/* GnuTLS calls this function to send bytes, as writev: all records of a message at once, so that none waits for the
 * client to confirm the one before. If there is no room for bytes of the handshake, its turn ends. */
static ssize_t push(gnutls_transport_ptr_t pointer, const giovec_t *parts, int n_parts)
{
	struct tls *t = pointer;
	const struct msghdr message = {.msg_iov = (struct iovec *)parts,
				       .msg_iovlen = (size_t)n_parts};
	const ssize_t n = sendmsg(t->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	const int code = errno;

	if (n < 0 && would_block(code))
		end_turn(t);
	errno = code;
	return n;
}

/* ---- messages of the handshake ---- */

enum {
	NAMES_HEAD =
		5, /* of the list of names: its length, and the type and the length of the first name */
	NAME_SHOWN = 64,
};

/* gnutls_ext_raw_parse calls this function for each extension of a client's first message. Sets *name, [size] borrowed,
 * to the server's name that the client has asked for (RFC 6066, section 3): extension 0 has a list with one name. */
static int take_name(void *name, unsigned extension, const unsigned char *data, unsigned size)
{
	if (extension == 0 && size > NAMES_HEAD)
		*(gnutls_datum_t *)name =
			(gnutls_datum_t){(unsigned char *)data + NAMES_HEAD, size - NAMES_HEAD};
	return 0;
}

/* GnuTLS refuses a name with other characters than these, without a word to the client. */
static bool has_other(const gnutls_datum_t *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";

	for (unsigned i = 0; i < name->size; i++)
		if (!name->data[i] || !strchr(allowed, name->data[i]))
			return true;
	return false;
}

/* Tells a client that asks for a name with other characters (such as my_service, which names of containers may be)
 * why its handshake fails, and the log at most once a minute. */
static int check_name(gnutls_session_t session, const gnutls_datum_t *hello)
{
	static _Thread_local struct log_limit limit;
	gnutls_datum_t name = {0};
	char more[LOG_MORE_MAX], shown[NAME_SHOWN + 1] = "";

	if (gnutls_ext_raw_parse(&name, take_name, hello, GNUTLS_EXT_RAW_FLAG_TLS_CLIENT_HELLO) <
		    0 ||
	    !has_other(&name))
		return 0;
	for (unsigned i = 0; i < MIN(name.size, (unsigned)NAME_SHOWN); i++)
		shown[i] = name.data[i] > ' ' && name.data[i] < 0x7f ? (char)name.data[i] : '?';
	if (log_due(&limit, clock_now_ns(), more))
		log_warning(
			"a client's TLS asks for the server name \"%s\", but GnuTLS takes names "
			"of letters, digits, - and . alone: reach this server by another name, "
			"or by its address%s",
			shown, more);
	(void)gnutls_alert_send(session, GNUTLS_AL_FATAL, GNUTLS_A_UNRECOGNIZED_NAME);
	return GNUTLS_E_RECEIVED_DISALLOWED_NAME;
}

/* GnuTLS calls this function before and after each message. Finished of the client is the last one of the handshake
 * that it sends. */
static int see_message(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
		       const gnutls_datum_t *message)
{
	struct tls *t = gnutls_transport_get_ptr(session);

	if (!incoming)
		return 0;
	if (type == GNUTLS_HANDSHAKE_CLIENT_HELLO && when == GNUTLS_HOOK_PRE)
		return check_name(session, message);
	if (type == GNUTLS_HANDSHAKE_FINISHED && when == GNUTLS_HOOK_POST) {
		t->settled = true;
		end_turn(t);
	}
	return 0;
}

struct tls *tls_begin(struct certificates *s, struct watch *w, struct connection *c,
		      struct MHD_Connection *mc, int fd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	struct tls *t = info ? calloc(1, sizeof(*t)) : NULL;

	if (!t)
		return NULL;
	*t = (struct tls){.session = info->tls_session,
			  .store = s,
			  .certificate = certificates_take(s),
			  .watch = w,
			  .connection = c,
			  .mc = mc,
			  .fd = fd};
	if (gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE,
				   certificate_credentials(t->certificate)) < 0) {
		tls_end(t);
		return NULL;
	}
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_vec_push_function(t->session, push);
	gnutls_handshake_set_max_packet_length(t->session, MESSAGE_MAX);
	gnutls_handshake_set_hook_function(t->session, GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_BOTH,
					   see_message);
	return t;
}

bool tls_end(struct tls *t)
{
	bool settled;

	if (!t)
		return true;
	settled = t->settled;
	certificate_drop(t->store, t->certificate);
	free(t);
	return settled;
}

bool tls_write(struct tls *t, const char *data, size_t len)
{
	while (len) {
		const ssize_t n = gnutls_record_send(t->session, data, len);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

void tls_close(struct tls *t)
{
	(void)!gnutls_bye(t->session, GNUTLS_SHUT_WR);
}
