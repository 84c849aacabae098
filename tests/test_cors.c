/* daemon/http/cors.c: lists of origins, and the origins that they name. */
#include "daemon/http/cors.h"

#include <errno.h>

#include "base/macros.h"
#include "tests/tap.h"

TEST(lists)
{
	static const char *const good[] = {"*",
					   "none",
					   "https://a.example",
					   "http://localhost:3000",
					   "http://[::1]:8080,https://b",
					   "http://a:443,https://a:80,http://a:8",
					   "chrome-extension://abcdef"};
	static const char *const empty[] = {"", ",https://a", "https://a,", "https://a,,https://b"};
	static const struct {
		const char *list, *origin;
	} bad[] = {{"a.example", "a.example"},
		   {"https://", "https://"},
		   {"https://a/", "https://a/"},
		   {"https://a,*", "*"},
		   {"none,https://a", "none"},
		   {"https://a b", "https://a b"},
		   {"://a", "://a"},
		   {"null", "null"},
		   {"https://u@a", "https://u@a"},
		   {"https://a:443", "https://a:443"},
		   {"HTTP://a:80", "HTTP://a:80"},
		   {"http://[::1]:80", "http://[::1]:80"},
		   {"http://:", "http://:"},
		   {"http://:8", "http://:8"},
		   {"http://a:", "http://a:"},
		   {"http://a:b", "http://a:b"},
		   {"http://a:8:8", "http://a:8:8"},
		   {"http://[]", "http://[]"},
		   {"http://[::1", "http://[::1"},
		   {"http://[::1]x", "http://[::1]x"},
		   {"https://a,http:/b,http://c", "http:/b"}};
	struct err e = {0};
	char want[256];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		is_int(cors_check(good[i], &e), 0, "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
		is_int(cors_check(empty[i], &e), -EINVAL, "\"%s\"", empty[i]);
		is_str(e.text, "an origin is empty", "a sentence");
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		is_int(cors_check(bad[i].list, &e), -EINVAL, "%s", bad[i].list);
		snprintf(want, sizeof(want),
			 "\"%s\" is no origin as browsers send it: SCHEME://HOST, or "
			 "SCHEME://HOST:PORT if the port is not the scheme's own",
			 bad[i].origin);
		is_str(e.text, want, "a sentence that names it");
	}
}

TEST(origins)
{
	static const char list[] = "https://a.example,http://b:81";
	static const char *const others[] = {"https://a.exampl",
					     "https://a.example.",
					     "http://a.example",
					     "http://b",
					     "https://a.example,http://b:81",
					     ",",
					     "null",
					     ""};

	ok(cors_is_open(NULL) && cors_is_open("*") && !cors_is_open("none") && !cors_is_open(list),
	   "open is the default and *");
	ok(cors_names(list, "https://a.example") && cors_names(list, "HTTPS://A.example") &&
		   cors_names(list, "http://b:81"),
	   "those of the list");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		ok(!cors_names(list, others[i]), "\"%s\" is another", others[i]);
	ok(!cors_names(list, NULL) && !cors_names(NULL, "https://a") && !cors_names("*", "*") &&
		   !cors_names("none", "none") && !cors_names("none", "https://none"),
	   "without a list none is named");
}

TEST_MAIN()
