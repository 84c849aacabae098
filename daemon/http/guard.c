#include "daemon/http/guard.h"

#include <string.h>
#include <strings.h>

#include "base/problem.h"
#include "daemon/http/cors.h"
#include "daemon/http/host.h"

/* Checks that the host in the request's target, or else the header Host, is a host; the header may be empty. At a
 * loopback address also checks that it names this machine or a host that is allowed. A request without both is one of
 * HTTP/1.0 (framing.c). It is refused, but not at the endpoints for probes, because the probes of some proxies are such
 * requests. */
static int check_host(struct MHD_Connection *mc, const struct exchange *x, struct err *e)
{
	const char *host = x->host ? x->host : exchange_header(mc, "Host");

	if (host && (x->host || *host) && !host_is_valid(host))
		return err_set(e, PROBLEM_FRAMING, "\"%.100s\" is not a host, nor HOST:PORT", host);
	if (!x->http->local || (!host && x->endpoint && x->endpoint->health))
		return 0;
	if (!host)
		return err_set(e, PROBLEM_HOST, "a Host header is needed at this address");
	if (host_is_allowed(host, x->http->server->options.allowed_host))
		return 0;
	return err_set(e, PROBLEM_HOST,
		       "this server is not at \"%.100s\"; --allowed-host names further hosts",
		       host);
}

/* Finds the key that stands behind `scheme` in a header's value. Returns its number; 0: there is none, or it is not
 * in `keys`. *given: there is one; else unchanged. The value is looked up with its length, so that one with a zero byte within is read to its end and is no
 * key. */
static size_t key_in(struct MHD_Connection *mc, const struct api_keys *keys, const char *header,
		     const char *scheme, bool *given)
{
	const char *value;
	size_t len, n = strlen(scheme);

	if (MHD_lookup_connection_value_n(mc, MHD_HEADER_KIND, header, strlen(header), &value,
					  &len) != MHD_YES ||
	    !value || len < n || strncasecmp(value, scheme, n) != 0)
		return 0;
	for (; n && n < len && value[n] == ' '; n++)
		;
	/* Blanks at the end of a header's line are no part of the value (RFC 9110, section 5.5). */
	for (; len > n && (value[len - 1] == ' ' || value[len - 1] == '\t'); len--)
		;
	*given |= len > n;
	return api_keys_find(keys, value + n, len - n);
}

/* Checks that the request has one of the port's keys, if the port has any. *ret_key is the key's number, or 0 if the
 * key is not valid; it is unchanged if no key is needed. Two kinds of requests need none: the probes of load balancers
 * (endpoint.health), and OPTIONS, by which a browser asks which requests it may send. */
static int check_key(struct MHD_Connection *mc, const struct exchange *x, size_t *ret_key,
		     struct err *e)
{
	const struct api_keys *keys = x->http->keys;
	bool given = false;
	size_t key;

	if (!keys->n || x->options || (x->endpoint && x->endpoint->health))
		return 0;
	key = key_in(mc, keys, "Authorization", "Bearer ", &given);
	if (!key)
		key = key_in(mc, keys, "x-api-key", "", &given);
	*ret_key = key;
	if (key)
		return 0;
	if (given)
		return err_set(e, PROBLEM_API_KEY,
			       "the request's key is none of this server's keys");
	return err_set(e, PROBLEM_API_KEY,
		       "the request has no key: this server needs one, as "
		       "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
}

/* Refuses requests that pages of web sites sent, where they could do harm. CORS alone does not suffice: it keeps a page
 * from reading an answer, but not from sending a request that flushes the cache, or one that computes. A browser sends
 * Origin with such a request, or at least Sec-Fetch-Site. OPTIONS is never refused here. Refused are
 *  - all requests with Origin to a guarded endpoint,
 *  - requests of another site (Sec-Fetch-Site) to a guarded endpoint that takes POST,
 *  - DELETE of another site, unless --cors-origin names the page,
 *  - POST of a page that --cors-origin does not name, if it has a list or is "none". A page of this server's own
 *    origin, behind a proxy, need not be named. */
static int check_origin(struct MHD_Connection *mc, const struct exchange *x, const char *method,
			struct err *e)
{
	const struct endpoint *p = x->endpoint;
	const bool guarded = p && p->guarded;
	const char *list = x->http->server->options.cors_origin;
	const char *origin = exchange_header(mc, "Origin");
	const char *site = exchange_header(mc, "Sec-Fetch-Site");
	const bool named = cors_names(list, origin);
	const bool changes = (guarded && p->post) || (!named && !strcmp(method, "DELETE"));

	if (x->options)
		return 0;
	if ((guarded && origin) || (changes && site && !strcasecmp(site, "cross-site")))
		return err_set(e, PROBLEM_CROSS_ORIGIN,
			       "such a request is not for pages of web sites");
	if (origin && !named && !cors_is_open(list) && !strcmp(method, "POST") &&
	    !(site && !strcasecmp(site, "same-origin")))
		return err_set(e, PROBLEM_CROSS_ORIGIN,
			       "pages of \"%.100s\" may not send requests; --cors-origin names "
			       "those that may",
			       origin);
	return 0;
}

static enum MHD_Result keep_forwarded(void *cls, enum MHD_ValueKind kind, const char *name,
				      const char *value)
{
	if (value && !strcasecmp(name, "X-Forwarded-For"))
		*(const char **)cls = value;
	return MHD_YES;
}

/* Returns the address of the client: that of the connection's other end, unless this is a trusted proxy
 * (--trusted-proxy). Such a proxy appends the client's address to X-Forwarded-For, behind addresses that others have
 * written there. So the client's address is the last one of the last such header. If it cannot be read, returns the
 * proxy's own address. */
static struct address address_of_client(struct MHD_Connection *mc, const struct http *h)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct address a = {0};
	const char *list = NULL;

	if (info)
		a = address_of(info->client_addr);
	if (!networks_have(h->trusted, &a))
		return a;
	MHD_get_connection_values(mc, MHD_HEADER_KIND, keep_forwarded, &list);
	if (list) {
		const char *comma = strrchr(list, ',');

		address_parse_forwarded(comma ? comma + 1 : list, &a);
	}
	return a;
}

int guard_check(struct MHD_Connection *mc, struct exchange *x, const char *method, struct err *e)
{
	struct address a = address_of_client(mc, x->http);
	size_t key = 0;
	int r = check_host(mc, x, e);

	if (!r)
		r = check_origin(mc, x, method, e);
	if (!r)
		r = check_key(mc, x, &key, e);
	/* Keys of the two ports may have the same number. If there is --admin-port, http.admin is true at that port
	 * alone, so it makes the numbers of their owners different. */
	x->owner = key ? key | (uint64_t)x->http->admin << 32 : address_number(&a);
	return r;
}
