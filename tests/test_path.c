/* daemon/http/path.c: paths in targets, spellings of paths. */
#include "daemon/http/path.h"

#include <stdio.h>

#include "base/macros.h"
#include "tests/tap.h"

TEST(spellings)
{
	static const struct {
		const char *text, *normal, *decoded;
	} rows[] = {
		{"/cache", "/cache", "/cache"},
		{"/%63ache", "/cache", "/cache"},
		{"/%63%61%43%48%45", "/caCHE", "/caCHE"},
		{"%41%5A%61%7a%30%39%2D%2e%5F%7E", "AZaz09-._~", "AZaz09-._~"},
		{"/cache%2Fflush", "/cache%2Fflush", "/cache/flush"},
		{"/a%2fb%20%3F%25", "/a%2fb%20%3F%25", "/a/b ?%"},
		{"/%2563ache", "/%2563ache", "/%63ache"},
		{"/metrics%00x", "/metrics%00x", "/metrics%00x"},
		{"%", "%", "%"},
		{"%4", "%4", "%4"},
		{"%4g%g4%%41", "%4g%g4%A", "%4g%g4%A"},
		{"%C3%A9%40%5B%60%7B", "%C3%A9%40%5B%60%7B", "\xc3\xa9@[`{"},
		{"", "", ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char normal[64], decoded[64];

		snprintf(normal, sizeof(normal), "%s", rows[i].text);
		snprintf(decoded, sizeof(decoded), "%s", rows[i].text);
		is_int((long long)path_normalise(normal), (long long)strlen(rows[i].normal),
		       "length of %s", rows[i].text);
		is_str(normal, rows[i].normal, "%s, normalised", rows[i].text);
		path_decode(decoded);
		is_str(decoded, rows[i].decoded, "%s, decoded", rows[i].text);
	}
}

TEST(targets)
{
	static const struct {
		const char *target, *path, *host; /* host NULL: there is none */
	} rows[] = {
		{"http://localhost/version", "/version", "localhost"},
		{"HTTPS://[::1]:80/v1/models/a/b", "/v1/models/a/b", "[::1]:80"},
		{"http://localhost:80", "/", "localhost:80"},
		{"http:///version", "/version", ""},
		{"http://user@host//version", "//version", "user@host"},
		{"/version", NULL, NULL},
		{"http:/version", NULL, NULL},
		{"%68ttp://localhost/version", NULL, NULL},
		{"ftp://localhost/version", NULL, NULL},
		{"/http://localhost/version", NULL, NULL},
		{"localhost:80", NULL, NULL},
		{"*", NULL, NULL},
		{"", NULL, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *host, *want = rows[i].host;
		size_t len;

		ok(path_has_host(rows[i].target) == !!want, "%s has a host: %d", rows[i].target,
		   !!want);
		if (!want)
			continue;
		is_str(path_behind_host(rows[i].target, &host, &len), rows[i].path, "its path");
		ok(len == strlen(want) && !strncmp(host, want, len), "its host: %s", want);
	}
}

TEST_MAIN()
