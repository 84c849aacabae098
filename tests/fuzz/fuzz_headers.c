/* Any bytes as parts of a client's request: a path, a host, addresses, headers, and a method for the log. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/http/address.h"
#include "daemon/http/framing.h"
#include "daemon/http/host.h"
#include "daemon/http/path.h"
#include "daemon/request/access.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const char *text, char c)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == c;
	return n;
}

/* path_normalise lengthens no path and makes no "/", "?" or NUL. path_decode, which decodes more, leaves at
 * most as many bytes, and does not change text without escapes. */
static void check_path(const char *text)
{
	char *normal = strdup(text), *decoded = strdup(text);

	if (path_normalise(normal) != strlen(normal) || strlen(normal) > strlen(text) ||
	    count(normal, '/') != count(text, '/') || count(normal, '?') != count(text, '?'))
		abort();
	path_decode(decoded);
	if (strlen(decoded) > strlen(normal) || (!strchr(text, '%') && strcmp(decoded, text) != 0))
		abort();
	free(normal);
	free(decoded);
}

/* The list "*" allows every host. Without a list a host is allowed only if it begins like a name of loopback. */
static void check_host(const char *text)
{
	bool here = host_is_allowed(text, NULL);

	if (!host_is_allowed(text, "*") || (here && !strchr("127lL[", text[0])))
		abort();
	host_is_allowed("a.example:80", text);
}

static void check_networks(const char *text)
{
	struct networks l;
	struct address a, b;
	struct err e = {0};

	if (networks_parse(text, &l, &e) < 0) {
		if (!e.text[0])
			abort();
	} else {
		for (size_t i = 0; i < l.n; i++)
			if (l.v[i].bits > 128 || !networks_have(&l, &l.v[i].address))
				abort();
	}
	if (address_parse(text, &a) &&
	    (address_number(&a) >> 62 != 1 || !address_parse_forwarded(text, &b) ||
	     !address_equal(&a, &b)))
		abort();
}

/* Each line is a header: name, colon, value. */
static void check_framing(const char *text, size_t len)
{
	struct framing f = {0};
	struct err e = {0};

	for (const char *end = text + len; text < end;) {
		const char *line = memchr(text, '\n', (size_t)(end - text));
		size_t n = line ? (size_t)(line - text) : (size_t)(end - text);
		const char *colon = memchr(text, ':', n);
		size_t name = colon ? (size_t)(colon - text) : n, rest = colon ? name + 1 : n;

		framing_add(&f, text, name, text + rest, n - rest);
		text += n + (line != NULL);
	}
	if (framing_check(&f, "HTTP/1.1", &e) < 0 ? !e.text[0] : f.n_hosts != 1 || f.n_lengths > 1)
		abort();
}

/* The text is the target of a request line: a zero byte in it is found, and a query that is too long does not stay. */
static void check_target(const char *text, size_t len)
{
	static const char method[] = "GET", version[] = "HTTP/1.1";
	char *line = malloc(sizeof(method) + len + 1 + sizeof(version));
	char *target = line + sizeof(method), *end = target + len;
	struct framing f = {0};
	const char *query;

	memcpy(line, method, sizeof(method));
	if (len)
		memcpy(target, text, len);
	*end = 0;
	memcpy(end + 1, version, sizeof(version));
	framing_target(&f, target);
	framing_line(&f, line, end + 1);
	query = strchr(target, '?');
	if (f.bad_method || f.cut_line != (len && memchr(text, 0, len)) ||
	    (!f.cut_line && f.target_len != len) ||
	    (f.n_arguments > FRAMING_ARGUMENTS_MAX && query && query[1]))
		abort();
	free(line);
}

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~' || *text == '"')
			return false;
	return true;
}

/* Method, path and id, as the log shows them, have no character that could end the line. Method and path also have none
 * that could end their part of it. */
static void check_access(const char *text)
{
	struct access a = {0};

	access_request(&a, text, text);
	access_take_id(&a, text);
	if (!is_plain(a.method) || !is_plain(a.path) || strlen(a.id) > REQUEST_ID_MAX ||
	    (a.id[0] && strcmp(a.id, text) != 0) || strpbrk(a.id, "\r\n\t\033"))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (size)
		memcpy(text, data, size);
	text[size] = 0;
	check_path(text);
	check_host(text);
	check_networks(text);
	check_framing(text, size);
	check_target(text, size);
	check_access(text);
	free(text);
	return 0;
}
