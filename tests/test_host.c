/* daemon/http/host.c: the names that are allowed on loopback, with and without a list. */
#include "daemon/http/host.h"

#include <errno.h>

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
		"localhost:x",
		"localhost:80:80",
		"localhost:x@evil.example",
		"localhost:80@evil.example:80",
		"localhost@evil.example",
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

TEST(forms)
{
	static const char *const good[] = {"localhost", "a_b.c:80", "x:",
					   "[::1]",	"[::1]:80", "%61"};
	static const char *const bad[] = {"",	  ":80",       ":",	    "a:x",     "a:80x",
					  "u@a",  "u:p@a",     "a:80@b:80", "a:80:80", "::1",
					  "[::1", "[::1]x:80", "@"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ok(host_is_valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok(!host_is_valid(bad[i]), "\"%s\" is no host", bad[i]);
}

TEST(list)
{
	static const char *const good[] = {"a", "a,b", "*", "a.example,*",
					   "A-1_b.,10.0.0.1,[fd00::1]"};
	static const char *const empty[] = {"", ",", ",,", ",a", "a,", "a,,b"};
	static const struct {
		const char *list, *name;
	} bad[] = {{"a, b", " b"},
		   {"a ,b", "a "},
		   {"a,b:80", "b:80"},
		   {"http://a", "http://a"},
		   {"*.a,b", "*.a"},
		   {"[::1]:80", "[::1]:80"},
		   {"fd00::1,a", "fd00::1"},
		   {"[]", "[]"},
		   {"[1]", "[1]"},
		   {"[::1", "[::1"},
		   {"[10.0.0.1]", "[10.0.0.1]"},
		   {"b\303\274cher", "b\303\274cher"}};
	struct err e = {0};
	char want[128];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		is_int(host_list_check(good[i], &e), 0, "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
		is_int(host_list_check(empty[i], &e), -EINVAL, "\"%s\"", empty[i]);
		is_str(e.text, "a name is empty", "a sentence");
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		is_int(host_list_check(bad[i].list, &e), -EINVAL, "%s", bad[i].list);
		snprintf(want, sizeof(want),
			 "\"%s\" is not the name of a host without a port, nor *", bad[i].name);
		is_str(e.text, want, "a sentence that names it");
	}
}

TEST_MAIN()
