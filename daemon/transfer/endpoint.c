#include "daemon/transfer/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "tcp://"

/* The host without brackets, and the port behind it. */
static int split(const char *text, char host[TRANSFER_ENDPOINT_MAX], const char **ret_port)
{
	const char *start = text + strlen(SCHEME), *end;

	if (strlen(text) >= TRANSFER_ENDPOINT_MAX || strncmp(text, SCHEME, strlen(SCHEME)) != 0)
		return -EINVAL;
	if (*start == '[') {
		start++;
		end = strchr(start, ']');
		if (!end || end[1] != ':')
			return -EINVAL;
		*ret_port = end + 2;
	} else {
		end = strchr(start, ':');
		if (!end || strchr(end + 1, ':'))
			return -EINVAL;
		*ret_port = end + 1;
	}
	if (end == start)
		return -EINVAL;
	memcpy(host, start, (size_t)(end - start));
	host[end - start] = 0;
	return 0;
}

static bool is_port(const char *text, bool port_0)
{
	size_t n = strspn(text, "0123456789");
	unsigned long port = strtoul(text, NULL, 10);

	return n && n <= 5 && !text[n] && port <= 65535 && (port || port_0);
}

static bool is_number(const char *host)
{
	struct in6_addr v6;
	struct in_addr v4;

	return inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1;
}

int transfer_endpoint_check(const char *text, bool listen, struct err *e)
{
	char host[TRANSFER_ENDPOINT_MAX];
	const char *port;

	if (split(text, host, &port) < 0 || strpbrk(host, "/; \t"))
		return err_set(e, EINVAL,
			       "\"%.300s\" is not an address such as tcp://10.0.0.1:8100", text);
	if (!is_port(port, listen))
		return err_set(e, EINVAL, "\"%s\": the port is not a number from %d to 65535", text,
			       !listen);
	if (listen && strcmp(host, "*") != 0 && !is_number(host))
		return err_set(e, EINVAL, "\"%s\": to be listened at are a numeric address and *",
			       text);
	if (!listen && transfer_endpoint_is_any(text))
		return err_set(e, EINVAL, "nobody can call %s", text);
	return 0;
}

bool transfer_endpoint_is_name(const char *text)
{
	char host[TRANSFER_ENDPOINT_MAX];
	const char *port;

	return split(text, host, &port) == 0 && strcmp(host, "*") != 0 && !is_number(host);
}

bool transfer_endpoint_is_local(const char *text)
{
	char host[TRANSFER_ENDPOINT_MAX];
	struct in6_addr v6;
	struct in_addr v4;
	const char *port;

	if (split(text, host, &port) < 0)
		return false;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return !strcmp(host, "localhost");
}

bool transfer_endpoint_is_any(const char *text)
{
	char host[TRANSFER_ENDPOINT_MAX];
	struct in6_addr v6;
	struct in_addr v4;
	const char *port;

	if (split(text, host, &port) < 0)
		return false;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return v4.s_addr == INADDR_ANY;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_UNSPECIFIED(&v6);
	return !strcmp(host, "*");
}

bool transfer_endpoint_takes_any_port(const char *text)
{
	char host[TRANSFER_ENDPOINT_MAX];
	const char *port;

	return split(text, host, &port) == 0 && strtoul(port, NULL, 10) == 0;
}
