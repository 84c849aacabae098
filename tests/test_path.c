/* daemon/http/path.c: spellings of paths. */
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

TEST_MAIN()
