/* daemon/http/host.c: the names that are allowed on loopback, with and without a list. */
#include "daemon/http/host.h"

#include "base/macros.h"
#include "tests/tap.h"

TEST(names)
{
	static const char *const here[] = {"localhost",	 "LocalHost:8080",
					   "127.0.0.1",	 "127.0.0.1:1",
					   "127.9.8.7",	 "[::1]",
					   "[::1]:8080", "[::ffff:127.0.0.1]:1",
					   "localhost:"};
	static const char *const elsewhere[] = {
		"",
		":8080",
		"x",
		"localhost.evil.example",
		"evil.example:8080",
		"128.0.0.1",
		"10.0.0.1",
		"127.0.0.1.x",
		"::1",
		"[::1",
		"[::2]",
		"[]",
		"[127.0.0.1]",
		"localhostx",
		"localhos",
		"*",
		"a.example",
		"[::1]x",
		"0.0.0.0",
		"[::]",
		"[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0001]"};
	static const char list[] = "a.example,B.Example,192.168.1.2,[fe80::1]";

	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		ok(host_is_allowed(here[i], NULL), "%s is here", here[i]);
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++) {
		ok(!host_is_allowed(elsewhere[i], NULL), "\"%s\" is not", elsewhere[i]);
		ok(host_is_allowed(elsewhere[i], "x.example,*"), "and \"*\" allows it");
	}
	ok(host_is_allowed("a.example", list) && host_is_allowed("A.EXAMPLE:80", list) &&
		   host_is_allowed("b.example", list) &&
		   host_is_allowed("192.168.1.2:8080", list) &&
		   host_is_allowed("[fe80::1]:8080", list) &&
		   host_is_allowed("[FE80:0::0:1]", list),
	   "names of the list");
	ok(!host_is_allowed("example", list) && !host_is_allowed("a.example.", list) &&
		   !host_is_allowed("a.exampl", list) &&
		   !host_is_allowed("a.example,b.example", list) && !host_is_allowed("", list) &&
		   !host_is_allowed("a.example", ""),
	   "and no others");
}

TEST_MAIN()
