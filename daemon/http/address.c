#include "daemon/http/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commas.h"
#include "base/macros.h"
#include "base/mix.h"

static struct address mapped(struct in_addr v4)
{
	struct address a = {.bytes = {[10] = 0xff, [11] = 0xff}};

	memcpy(a.bytes + 12, &v4, 4);
	return a;
}

struct address address_of(const struct sockaddr *from)
{
	struct address a = {0};

	if (from->sa_family == AF_INET)
		return mapped(((const struct sockaddr_in *)from)->sin_addr);
	if (from->sa_family == AF_INET6)
		memcpy(a.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, sizeof(a.bytes));
	return a;
}

bool address_equal(const struct address *a, const struct address *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool is_v4(const struct address *a)
{
	static const uint8_t mapping[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(a->bytes, mapping, sizeof(mapping));
}

bool address_same_client(const struct address *a, const struct address *b)
{
	return !memcmp(a, b, is_v4(a) || is_v4(b) ? sizeof(*a) : sizeof(*a) / 2);
}

bool address_is_loopback(const struct address *a)
{
	static const uint8_t v4[] = {[10] = 0xff, [11] = 0xff, [12] = 127}, v6[16] = {[15] = 1};

	return !memcmp(a->bytes, v4, sizeof(v4)) || !memcmp(a->bytes, v6, sizeof(v6));
}

bool address_parse(const char *text, struct address *ret)
{
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) == 1) {
		*ret = mapped(v4);
		return true;
	}
	return inet_pton(AF_INET6, text, ret->bytes) == 1;
}

bool address_parse_forwarded(const char *text, struct address *ret)
{
	const char *begin = text + strspn(text, " \t"), *end;
	char address[INET6_ADDRSTRLEN];

	if (*begin == '[') {
		begin++;
		end = begin + strcspn(begin, "]");
	} else {
		end = begin + strcspn(begin, " \t");
		/* An IPv6 address without brackets has more than one colon, and no port. */
		if (memchr(begin, ':', (size_t)(end - begin)) ==
		    memrchr(begin, ':', (size_t)(end - begin)))
			end = begin + MIN((size_t)(end - begin), strcspn(begin, ":"));
	}
	if ((size_t)(end - begin) >= sizeof(address))
		return false;
	memcpy(address, begin, (size_t)(end - begin));
	address[end - begin] = 0;
	return address_parse(address, ret);
}

uint64_t address_number(const struct address *a)
{
	uint64_t half[2];

	memcpy(half, a->bytes, sizeof(half));
	return mix_add(half[0], is_v4(a) ? half[1] : 0) >> 2 | UINT64_C(1) << 62;
}

/* Reads "ADDRESS" or "ADDRESS/BITS". Puts a zero byte in place of the slash. False: the text is neither; then *ret
 * may have changed. */
static bool parse_network(char *text, struct network *ret)
{
	char *slash = strchr(text, '/'), *end = text;
	unsigned long most = strchr(text, ':') ? 128 : 32, bits;

	if (slash)
		*slash = 0;
	if (!address_parse(text, &ret->address))
		return false;
	bits = slash ? strtoul(slash + 1, &end, 10) : most;
	ret->bits = (unsigned)(128 - most + bits);
	return !slash || (slash[1] >= '0' && slash[1] <= '9' && !*end && bits <= most);
}

int networks_parse(const char *text, struct networks *ret, struct err *e)
{
	const char *rest = *text ? text : NULL, *part;
	struct networks l = {0};
	size_t n;

	while (commas_next(&rest, &part, &n)) {
		char one[64];

		if (!n && !rest)
			return err_set(e, EINVAL, "there is nothing behind the last comma");
		if (l.n == NETWORKS_MAX)
			return err_set(e, EINVAL, "there are more than %d addresses", NETWORKS_MAX);
		snprintf(one, sizeof(one), "%.*s", (int)MIN(n, sizeof(one)), part);
		if (n >= sizeof(one) || !parse_network(one, &l.v[l.n++]))
			return err_set(e, EINVAL,
				       "\"%.*s\" is neither an IP address nor ADDRESS/BITS",
				       (int)MIN(n, sizeof(one)), part);
	}
	*ret = l;
	return 0;
}

bool networks_have(const struct networks *l, const struct address *a)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct network *w = &l->v[i];
		unsigned whole = w->bits / 8, rest = w->bits % 8;

		if (!memcmp(w->address.bytes, a->bytes, whole) &&
		    (!rest || !((w->address.bytes[whole] ^ a->bytes[whole]) >> (8 - rest))))
			return true;
	}
	return false;
}
