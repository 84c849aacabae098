#include "daemon/transfer/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "tcp://"

struct endpoint {
	char host[TRANSFER_ENDPOINT_MAX]; /* without brackets */
	const char *port;
	enum { HOST_NAME, HOST_ALL, HOST_V4, HOST_V6 } kind;
	struct in_addr v4;
	struct in6_addr v6;
};

static int parse(const char *text, struct endpoint *ret)
{
	const char *start = text + strlen(SCHEME), *end;
	bool brackets;

	if (strlen(text) >= TRANSFER_ENDPOINT_MAX || strncmp(text, SCHEME, strlen(SCHEME)) != 0)
		return -EINVAL;
	brackets = *start == '[';
	start += brackets;
	end = strchr(start, brackets ? ']' : ':');
	if (!end || end == start || (brackets && end[1] != ':'))
		return -EINVAL;
	ret->port = end + 1 + brackets;
	if (!brackets && strchr(ret->port, ':'))
		return -EINVAL;
	memcpy(ret->host, start, (size_t)(end - start));
	ret->host[end - start] = 0;
	ret->kind = !strcmp(ret->host, "*")			    ? HOST_ALL
		    : inet_pton(AF_INET, ret->host, &ret->v4) == 1  ? HOST_V4
		    : inet_pton(AF_INET6, ret->host, &ret->v6) == 1 ? HOST_V6
								    : HOST_NAME;
	return 0;
}

static bool is_port(const char *text, bool port_0)
{
	size_t n = strspn(text, "0123456789");
	unsigned long port = strtoul(text, NULL, 10);

	return n && n <= 5 && !text[n] && port <= 65535 && (port || port_0);
}

static bool is_any(const struct endpoint *p)
{
	return p->kind == HOST_ALL || (p->kind == HOST_V4 && p->v4.s_addr == INADDR_ANY) ||
	       (p->kind == HOST_V6 && IN6_IS_ADDR_UNSPECIFIED(&p->v6));
}

int transfer_endpoint_check(const char *text, bool listen, struct err *e)
{
	struct endpoint p;

	if (parse(text, &p) < 0 || strpbrk(p.host, "/; \t"))
		return err_set(e, EINVAL,
			       "\"%.300s\" is not an address such as tcp://10.0.0.1:8100", text);
	if (!is_port(p.port, listen))
		return err_set(e, EINVAL, "\"%s\": the port is not a number from %d to 65535", text,
			       !listen);
	if (listen && p.kind == HOST_NAME)
		return err_set(e, EINVAL,
			       "\"%s\": the host to listen at has to be a numeric address or *",
			       text);
	if (!listen && is_any(&p))
		return err_set(e, EINVAL,
			       "%s means all addresses of a machine, so no peer can connect to it",
			       text);
	return 0;
}

int transfer_endpoint_option(const char *option, const char *text, bool listen, const char *keys,
			     struct err *e)
{
	int r = transfer_endpoint_check(text, listen, e);

	if (r < 0)
		err_prefix(e, "%s", option);
	else if (!keys && !transfer_endpoint_is_local(text))
		r = err_set(e, EINVAL,
			    "%s: %s is not loopback, and beyond it --transfer-key is required",
			    option, text);
	return r;
}

bool transfer_endpoint_is_name(const char *text)
{
	struct endpoint p;

	return parse(text, &p) == 0 && p.kind == HOST_NAME;
}

bool transfer_endpoint_is_local(const char *text)
{
	struct endpoint p;

	if (parse(text, &p) < 0)
		return false;
	return (p.kind == HOST_V4 && ntohl(p.v4.s_addr) >> 24 == 127) ||
	       (p.kind == HOST_V6 && IN6_IS_ADDR_LOOPBACK(&p.v6)) ||
	       (p.kind == HOST_NAME && !strcmp(p.host, "localhost"));
}

bool transfer_endpoint_is_any(const char *text)
{
	struct endpoint p;

	return parse(text, &p) == 0 && is_any(&p);
}

bool transfer_endpoint_takes_any_port(const char *text)
{
	struct endpoint p;

	return parse(text, &p) == 0 && strtoul(p.port, NULL, 10) == 0;
}
