/* Addresses of clients and lists of networks. */
#include "daemon/http/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "base/buf.h"
#include "tests/tap.h"

static struct address v4(const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	check(inet_pton(AF_INET, text, &in.sin_addr) == 1);
	return address_of((const struct sockaddr *)&in);
}

static struct address v6(const char *text)
{
	struct sockaddr_in6 in = {.sin6_family = AF_INET6};

	check(inet_pton(AF_INET6, text, &in.sin6_addr) == 1);
	return address_of((const struct sockaddr *)&in);
}

TEST(networks)
{
	static const struct {
		const char *list, *address;
		bool in;
	} rows[] = {
		{"", "127.0.0.1", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.0/8", "127.255.0.9", true},
		{"127.0.0.0/8", "126.255.0.9", false},
		{"10.2.0.0/15,192.168.1.128/25", "10.1.255.255", false},
		{"10.2.0.0/15,192.168.1.128/25", "10.3.255.255", true},
		{"10.2.0.0/15,192.168.1.128/25", "192.168.1.128", true},
		{"10.2.0.0/15,192.168.1.128/25", "192.168.1.127", false},
		{"0.0.0.0/0", "8.8.8.8", true},
		{"0.0.0.0/0", "2001:db8::1", false},
		{"::/0", "8.8.8.8", true},
		{"::1", "::1", true},
		{"::1", "127.0.0.1", false},
		{"2001:db8::/33", "2001:db8:7fff::1", true},
		{"2001:db8::/33", "2001:db8:8000::1", false},
		{"::ffff:10.0.0.0/104", "10.9.8.7", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct address a =
			strchr(rows[i].address, ':') ? v6(rows[i].address) : v4(rows[i].address);
		struct err e = {0};
		struct networks l;

		check(networks_parse(rows[i].list, &l, &e) == 0);
		ok(networks_have(&l, &a) == rows[i].in, "%s %s \"%s\"", rows[i].address,
		   rows[i].in ? "is in" : "is not in", rows[i].list);
	}
}

TEST(refused)
{
	static const char *const wrong[] = {
		"localhost",
		"127.0.0.1/33",
		"::1/129",
		"10.0.0.0/",
		"10.0.0.0/8,",
		",",
		"10.0.0.0/8,,::1",
		"10.0.0.0/-1",
		"10.0.0.0/8x",
		"10.0.0",
		"10.0.0.0 /8",
		"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000",
	};
	struct networks l = {.n = 7};
	struct err e = {0};
	struct buf many;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		is_int(networks_parse(wrong[i], &l, &e), -EINVAL, "%s", wrong[i]);
	buf_init(&many, 1 << 20);
	for (int i = 0; i <= NETWORKS_MAX; i++)
		buf_puts(&many, i ? ",10.0.0.1" : "10.0.0.1");
	is_int(networks_parse(buf_str(&many), &l, &e), -EINVAL, "too many");
	buf_release(&many);
	is_int((long long)l.n, 7, "and the list is unchanged");
}

TEST(others)
{
	struct address other = address_of(&(struct sockaddr){.sa_family = AF_UNIX}),
		       a = v4("10.0.0.1"), b = v6("::ffff:10.0.0.1");

	ok(address_equal(&a, &b), "an IPv4 address is its mapped IPv6 address");
	ok(!address_equal(&a, &other), "another kind is no address");
}

int main(void)
{
	run_tests();
	return done();
}
