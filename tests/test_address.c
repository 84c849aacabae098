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

TEST(numbers)
{
	struct address a = v4("10.0.0.1"), b = v4("10.0.0.2"), same = v6("::ffff:10.0.0.1");
	struct address c = v6("2001:db8::1"), near = v6("2001:db8::ffff:1"),
		       far = v6("2001:db8:0:1::1");
	struct address parsed = a;

	ok(address_number(&a) != address_number(&b), "two addresses");
	ok(address_number(&a) == address_number(&same), "one in two forms");
	ok(address_number(&c) == address_number(&near), "the first 64 bits of IPv6");
	ok(address_number(&c) != address_number(&far), "and no fewer");
	ok(address_number(&a) >> 62 == 1 && address_number(&c) >> 62 == 1, "no number of a key");
	ok(!address_parse("10.0.0.2:80", &parsed) && !address_parse("", &parsed) &&
		   !address_parse("unknown", &parsed) && address_equal(&parsed, &a),
	   "what is no address changes nothing");
	ok(address_parse("10.0.0.2", &parsed) && address_equal(&parsed, &b) &&
		   address_parse("2001:db8::1", &parsed) && address_equal(&parsed, &c),
	   "addresses");
}

static bool forwarded(const char *text, const char *address)
{
	struct address got = {{0}}, want;

	return address_parse(address, &want) && address_parse_forwarded(text, &got) &&
	       address_equal(&got, &want);
}

TEST(forwarded)
{
	struct address a;

	ok(forwarded("10.0.0.2", "10.0.0.2") && forwarded(" 10.0.0.2\t ", "10.0.0.2") &&
		   forwarded("10.0.0.2:567", "10.0.0.2"),
	   "a proxy may write blanks around an address, and a port behind it");
	ok(forwarded("2001:db8::1", "2001:db8::1") &&
		   forwarded("[2001:db8::1]:567", "2001:db8::1") && forwarded(" [::1]", "::1"),
	   "an IPv6 address with a port stands in brackets");
	ok(!address_parse_forwarded("", &a) && !address_parse_forwarded("unknown", &a) &&
		   !address_parse_forwarded("[", &a) && !address_parse_forwarded(":80", &a) &&
		   !address_parse_forwarded("1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa",
					    &a),
	   "other texts are no addresses");
}

TEST(loopback)
{
	static const char *const here[] = {"127.0.0.1", "127.255.1.2"},
				 *const there[] = {"128.0.0.1", "10.0.0.1", "0.0.0.0"};
	struct address a = v6("::1"), any = v6("::"), mapped = v6("::ffff:127.0.0.1");

	ok(address_is_loopback(&a) && address_is_loopback(&mapped) && !address_is_loopback(&any),
	   "IPv6");
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		ok((a = v4(here[i]), address_is_loopback(&a)), "%s", here[i]);
	for (size_t i = 0; i < ARRAY_SIZE(there); i++)
		ok((a = v4(there[i]), !address_is_loopback(&a)), "not %s", there[i]);
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
