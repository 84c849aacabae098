#include "daemon/cli/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { HEADERS_MAX = 64 << 10, BODY_MAX = 64 << 20, READ_SIZE = 64 << 10 };

/* Reads the certificates that are trusted. */
static int read_trust(const char *ca_file, gnutls_certificate_credentials_t *ret, struct err *e)
{
	gnutls_certificate_credentials_t trust;
	int r;

	if (gnutls_certificate_allocate_credentials(&trust) < 0)
		return err_no_memory(e);
	r = ca_file ? gnutls_certificate_set_x509_trust_file(trust, ca_file, GNUTLS_X509_FMT_PEM)
		    : gnutls_certificate_set_x509_system_trust(trust);
	if (ca_file && r <= 0) {
		gnutls_certificate_free_credentials(trust);
		return err_set(e, EINVAL, "--tls-ca: %s: there is no certificate in PEM%s%s",
			       ca_file, r < 0 ? ": " : "", r < 0 ? gnutls_strerror(r) : "");
	}
	*ret = trust;
	return 0;
}

void target_release(struct target *t)
{
	if (t->trust)
		gnutls_certificate_free_credentials(t->trust);
	t->trust = NULL;
}

int target_parse(const char *url, const char *ca_file, struct target *ret, struct err *e)
{
	const bool tls = !strncasecmp(url, "https://", 8);
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct target t = {.port = "80"};
	struct addrinfo *list;
	const char *p = url, *slash, *end, *colon;
	int r;

	if (!tls && strncasecmp(url, "http://", 7) != 0)
		return err_set(e, EINVAL, "--url %s: only http:// and https:// are known", url);
	if (!tls && ca_file)
		return err_set(e, EINVAL, "--tls-ca is for an --url with https://");
	if (tls)
		snprintf(t.port, sizeof(t.port), "443");
	p += tls ? 8 : 7;
	slash = strchr(p, '/');
	end = slash ? slash : p + strlen(p);
	if (*p == '[') { /* an IPv6 address */
		const char *close = memchr(p, ']', (size_t)(end - p));

		colon = close && close + 1 < end && close[1] == ':' ? close + 1 : NULL;
		snprintf(t.host, sizeof(t.host), "%.*s", (int)(close ? close - p - 1 : 0), p + 1);
	} else {
		colon = memchr(p, ':', (size_t)(end - p));
		snprintf(t.host, sizeof(t.host), "%.*s", (int)((colon ? colon : end) - p), p);
	}
	if (colon)
		snprintf(t.port, sizeof(t.port), "%.*s", (int)(end - colon - 1), colon + 1);
	if (slash && slash[1])
		snprintf(t.prefix, sizeof(t.prefix), "%s", slash);
	/* The prefix must not end with a slash, because the path that follows it begins with one. */
	if (t.prefix[0] && t.prefix[strlen(t.prefix) - 1] == '/')
		t.prefix[strlen(t.prefix) - 1] = 0;
	if (strspn(t.port, "0123456789") != strlen(t.port) ||
	    strtoul(t.port, NULL, 10) - 1 >= 65535)
		return err_set(e, EINVAL, "--url %s: the port is not a number from 1 to 65535",
			       url);
	r = getaddrinfo(t.host, t.port, &hints, &list);
	if (r)
		return err_set(e, EINVAL, "--url %s: %s", url, gai_strerror(r));
	memcpy(&t.address, list->ai_addr, list->ai_addrlen);
	t.address_len = list->ai_addrlen;
	t.family = list->ai_family;
	freeaddrinfo(list);
	if (tls && read_trust(ca_file, &t.trust, e) < 0)
		return -e->code;
	*ret = t;
	return 0;
}

int target_key(struct target *t, const char *path, struct err *e)
{
	struct api_keys keys = {0};
	int r = path ? api_keys_open(path, &keys, e) : 0;

	if (r < 0)
		err_prefix(e, "--api-key-file");
	else if (keys.n)
		memcpy(t->key, keys.v[0].text, sizeof(t->key));
	api_keys_release(&keys);
	return r;
}

void stream_init(struct stream *s, void (*event)(struct stream *, const char *, size_t), void *user)
{
	*s = (struct stream){.fd = -1, .event = event, .user = user};
	buf_init(&s->out, BODY_MAX);
	buf_init(&s->in, HEADERS_MAX + READ_SIZE);
	buf_init(&s->body, BODY_MAX);
	buf_init(&s->data, BODY_MAX);
}

static void disconnect(struct stream *s)
{
	if (s->tls)
		gnutls_deinit(s->tls);
	s->tls = NULL;
	s->handshaking = false;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->state = STREAM_CLOSED;
}

void stream_release(struct stream *s)
{
	disconnect(s);
	buf_release(&s->out);
	buf_release(&s->in);
	buf_release(&s->body);
	buf_release(&s->data);
}

/* Makes the session of TLS, which checks that a trusted certificate has the name of the host. */
static int begin_tls(struct stream *s, const struct target *t, struct err *e)
{
	struct in6_addr address;
	const bool named = inet_pton(AF_INET, t->host, &address) != 1 &&
			   inet_pton(AF_INET6, t->host, &address) != 1;

	if (gnutls_init(&s->tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0 ||
	    gnutls_set_default_priority(s->tls) < 0 ||
	    gnutls_credentials_set(s->tls, GNUTLS_CRD_CERTIFICATE, t->trust) < 0 ||
	    (named &&
	     gnutls_server_name_set(s->tls, GNUTLS_NAME_DNS, t->host, strlen(t->host)) < 0))
		return err_no_memory(e);
	gnutls_session_set_verify_cert(s->tls, t->host, 0);
	gnutls_transport_set_int(s->tls, s->fd);
	s->handshaking = true;
	s->greeted = false;
	return 0;
}

static int dial(struct stream *s, const struct target *t, struct err *e)
{
	int one = 1;

	s->fd = socket(t->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return err_set(e, errno, "socket: %s", strerror(errno));
	setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(s->fd, (const struct sockaddr *)&t->address, t->address_len) < 0 &&
	    errno != EINPROGRESS) {
		int code = errno;

		disconnect(s);
		return err_set(e, code, "cannot connect to %s port %s: %s", t->host, t->port,
			       strerror(code));
	}
	if (t->trust && begin_tls(s, t, e) < 0) {
		disconnect(s);
		return -e->code;
	}
	return 0;
}

/* Goes on with the handshake. Sets s->handshaking to false at its end. */
static int shake_hands(struct stream *s, struct err *e)
{
	socklen_t len = sizeof(int);
	gnutls_datum_t why;
	int r, code = 0;

	getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &len);
	if (code)
		return err_set(e, code, "cannot connect to the server: %s", strerror(code));
	r = gnutls_handshake(s->tls);
	s->greeted = true;
	if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED)
		return 0;
	if (r == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR &&
	    gnutls_certificate_verification_status_print(
		    gnutls_session_get_verify_cert_status(s->tls), GNUTLS_CRT_X509, &why, 0) >= 0) {
		err_set(e, EPROTO, "%s--tls-ca FILE names certificates to trust", why.data);
		gnutls_free(why.data);
		return -e->code;
	}
	if (r < 0)
		return err_set(e, EPROTO, "the handshake of TLS failed: %s", gnutls_strerror(r));
	s->handshaking = false;
	return 0;
}

/* Returns a result of GnuTLS as send and recv do: -1 with errno. */
static ssize_t tls_result(struct stream *s, ssize_t n)
{
	if (n >= 0)
		return n;
	s->tls_error = (int)n;
	errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
	return -1;
}

/* As send and recv, also over TLS. */
static ssize_t put_bytes(struct stream *s, const char *data, size_t len)
{
	return s->tls ? tls_result(s, gnutls_record_send(s->tls, data, len))
		      : send(s->fd, data, len, MSG_NOSIGNAL);
}

static ssize_t get_bytes(struct stream *s, char *to, size_t max)
{
	return s->tls ? tls_result(s, gnutls_record_recv(s->tls, to, max))
		      : recv(s->fd, to, max, 0);
}

/* Returns why put_bytes or get_bytes has failed. */
static const char *why_failed(const struct stream *s)
{
	return s->tls ? gnutls_strerror(s->tls_error) : strerror(errno);
}

int stream_send(struct stream *s, const struct target *t, const char *method, const char *path,
		const char *body, bool *ret_new, struct err *e)
{
	bool fresh = s->state == STREAM_CLOSED, v6 = strchr(t->host, ':');

	if (fresh) {
		int r = dial(s, t, e);

		if (r < 0)
			return r;
	}
	buf_reset(&s->out);
	buf_reset(&s->in);
	buf_reset(&s->body);
	buf_reset(&s->data);
	buf_printf(&s->out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\n", method, t->prefix, path,
		   v6 ? "[" : "", t->host, v6 ? "]" : "", t->port);
	if (t->key[0])
		buf_printf(&s->out, "Authorization: Bearer %s\r\n", t->key);
	buf_printf(&s->out,
		   "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
		   "Content-Length: %zu\r\n\r\n%s",
		   strlen(body), body);
	if (s->out.failed) {
		disconnect(s);
		return err_no_memory(e);
	}
	s->sent = 0;
	s->status = 0;
	s->chunked = s->has_length = s->chunked_end = s->has_events = s->after_cr = false;
	s->left = 0;
	s->keep_alive = true;
	s->reused = !fresh;
	s->state = STREAM_SENDING;
	*ret_new = fresh;
	return 0;
}

int stream_retry(struct stream *s, const struct target *t, struct err *e)
{
	struct err why;

	if (!s->reused || s->status || s->in.len)
		return 0;
	s->reused = false;
	if (dial(s, t, &why) < 0) {
		*e = why;
		return 0;
	}
	*e = (struct err){0};
	s->sent = 0;
	s->state = STREAM_SENDING;
	return 1;
}

uint32_t stream_events(const struct stream *s)
{
	if (s->handshaking)
		return s->greeted && !gnutls_record_get_direction(s->tls) ? EPOLLIN : EPOLLOUT;
	return s->state == STREAM_SENDING ? EPOLLOUT : EPOLLIN;
}

static int send_out(struct stream *s, struct err *e)
{
	while (s->sent < s->out.len) {
		ssize_t n = put_bytes(s, s->out.data + s->sent, s->out.len - s->sent);

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0)
			return err_set(e, errno, "cannot send to the server: %s", why_failed(s));
		s->sent += (size_t)n;
	}
	s->state = STREAM_HEADERS;
	return 0;
}

static void take_header(struct stream *s, const char *line)
{
	static const char type[] = "text/event-stream";

	if (!strncasecmp(line, "Transfer-Encoding:", 18) && strcasestr(line + 18, "chunked")) {
		s->chunked = true;
	} else if (!strncasecmp(line, "Content-Length:", 15)) {
		s->has_length = true;
		s->left = strtoull(line + 15, NULL, 10);
	} else if (!strncasecmp(line, "Content-Type:", 13)) {
		line += 13 + strspn(line + 13, " \t");
		s->has_events = !strncasecmp(line, type, sizeof(type) - 1);
	} else if (!strncasecmp(line, "Connection:", 11) && strcasestr(line + 11, "close")) {
		s->keep_alive = false;
	}
}

/* Takes the headers out of s->in and reads them. While they are not complete, only checks their length. */
static int take_headers(struct stream *s, struct err *e)
{
	char *end = s->in.len ? strstr(s->in.data, "\r\n\r\n") : NULL, *line, *next;
	size_t len;

	if (!end)
		return s->in.len > HEADERS_MAX
			       ? err_set(e, EPROTO, "the answer's headers are too long")
			       : 0;
	len = (size_t)(end - s->in.data) + 4;
	end[2] = 0;
	line = s->in.data;
	if (strncmp(line, "HTTP/1.", 7) != 0 || !strchr(line, ' '))
		return err_set(e, EPROTO, "the answer is not HTTP");
	s->status = (int)strtol(strchr(line, ' '), NULL, 10);
	for (; (next = strstr(line, "\r\n")); line = next + 2) {
		*next = 0;
		take_header(s, line);
	}
	buf_consume(&s->in, len);
	if (s->chunked)
		s->left = 0;
	else if (!s->has_length)
		s->keep_alive = false;
	s->state = STREAM_BODY;
	return 0;
}

/* Takes one line of the events, without its end. A line is "field: value", where the blank may be missing, or a field
 * alone; a comment has an empty field. An empty line ends an event, which counts only if it has data. Source: the HTML
 * standard, section 9.2.6. */
static void take_line(struct stream *s, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len), *value = colon ? colon + 1 : line + len;
	size_t field_len = colon ? (size_t)(colon - line) : len, value_len;

	if (!len && s->data.len) {
		s->data.data[--s->data.len] = 0; /* the LF behind the last data line */
		s->event(s, s->data.data, s->data.len);
		buf_reset(&s->data);
	}
	if (field_len != 4 || memcmp(line, "data", 4) != 0)
		return;
	value_len = (size_t)(line + len - value);
	if (value_len && *value == ' ') {
		value++;
		value_len--;
	}
	buf_append(&s->data, value, value_len);
	buf_putc(&s->data, '\n');
}

/* Takes the complete lines out of the front of s->body and calls s->event for each event that they complete. A line
 * ends with CR LF, LF or CR. */
static void take_events(struct stream *s)
{
	size_t line = 0; /* where the line that is being read begins */

	for (size_t at = 0; at < s->body.len; at++) {
		const char c = s->body.data[at];
		const bool crlf = c == '\n' && s->after_cr;

		s->after_cr = c == '\r';
		if (c != '\r' && c != '\n')
			continue;
		if (!crlf)
			take_line(s, s->body.data + line, at - line);
		line = at + 1;
	}
	buf_consume(&s->body, line);
}

/* Moves up to s->left bytes from s->in to s->body. */
static void move(struct stream *s)
{
	size_t n = (size_t)MIN((uint64_t)s->in.len, s->left);

	buf_append(&s->body, s->in.data, n);
	buf_consume(&s->in, n);
	s->left -= n;
}

/* Takes chunks out of s->in and adds their data to s->body. A chunk is a line with the size, then the data, then CRLF.
 * 1: the last chunk has come. */
static int take_chunks(struct stream *s, struct err *e)
{
	for (;;) {
		char *eol, *end;

		if (s->left) {
			if (!s->in.len)
				return 0;
			move(s);
			if (!s->left)
				s->chunked_end = true;
			continue;
		}
		eol = s->in.len ? strstr(s->in.data, "\r\n") : NULL;
		if (!eol)
			return 0;
		if (s->chunked_end) { /* the CRLF behind a chunk's data */
			buf_consume(&s->in, 2);
			s->chunked_end = false;
			continue;
		}
		s->left = strtoull(s->in.data, &end, 16);
		if (end == s->in.data)
			return err_set(e, EPROTO, "the answer's chunks are broken");
		if (!s->left) {
			/* Trailers are not expected: only the empty line follows. */
			if (s->in.len < (size_t)(eol - s->in.data) + 4)
				return 0;
			buf_reset(&s->in);
			return 1;
		}
		buf_consume(&s->in, (size_t)(eol - s->in.data) + 2);
	}
}

static int take_body(struct stream *s, struct err *e)
{
	int r = 0;

	if (s->chunked) {
		r = take_chunks(s, e);
	} else if (s->has_length) {
		move(s);
		r = !s->left;
	} else {
		s->left = s->in.len;
		move(s);
	}
	if (r >= 0 && s->event && s->has_events)
		take_events(s);
	return s->body.failed || s->data.failed ? err_no_memory(e) : r;
}

/* Reads the answer from the received bytes. 1: the answer is complete. */
static int take_input(struct stream *s, struct err *e)
{
	int r = 0;

	if (s->state == STREAM_HEADERS)
		r = take_headers(s, e);
	if (!r && s->state == STREAM_BODY)
		r = take_body(s, e);
	if (r == 1) {
		s->state = STREAM_IDLE;
		if (!s->keep_alive)
			disconnect(s);
	}
	return r;
}

static int fail(struct stream *s, int r)
{
	disconnect(s);
	return r;
}

int stream_io(struct stream *s, struct err *e)
{
	char piece[READ_SIZE];

	if (s->state == STREAM_SENDING) {
		int r = s->handshaking ? shake_hands(s, e) : 0;

		if (!r && !s->handshaking)
			r = send_out(s, e);
		if (r < 0)
			return fail(s, r);
		if (s->state == STREAM_SENDING)
			return 0;
	}
	for (;;) {
		ssize_t n = get_bytes(s, piece, sizeof(piece));
		int r;

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0)
			return fail(s,
				    err_set(e, errno, "cannot read the answer: %s", why_failed(s)));
		if (n == 0) {
			bool whole = s->state == STREAM_BODY && !s->chunked && !s->has_length;

			disconnect(s);
			return whole ? 1
				     : err_set(e, ECONNRESET, "the server closed the connection");
		}
		buf_append(&s->in, piece, (size_t)n);
		r = s->in.failed ? err_no_memory(e) : take_input(s, e);
		if (r < 0)
			return fail(s, r);
		if (r > 0)
			return 1;
	}
}
