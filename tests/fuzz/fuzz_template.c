/* Bytes as a template, and those behind a zero byte, if there is one, as the JSON of its context. A template that
 * renders must give UTF-8; one that fails must say why and leave the output unchanged. Rendering it twice gives the
 * same code. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
	"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
	"\"content\": \"h\\u00e9\\ud83d\\ude00\\u0000\"}, {\"role\": \"assistant\", "
	"\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, null, "
	"true]}}}]}], \"tools\": [{\"function\": {\"name\": \"f\"}}], \"n\": 3, \"f\": 2.5, "
	"\"s\": \"ab c\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": 2}, \"t\": true, \"x\": null}";

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void render_twice(const struct template *t, const json_t *context)
{
	struct err e = {0};
	struct buf a, b;
	int rc, again;

	buf_init(&a, 1 << 20);
	buf_init(&b, 1 << 20);
	buf_puts(&a, "kept");
	buf_puts(&b, "kept");
	rc = template_render(t, context, NULL, &a, &e);
	if (rc < 0) {
		require(rc == -EINVAL || rc == -EBADMSG || rc == -E2BIG);
		require(e.text[0] || rc == -EBADMSG);
		require(utf8_valid(e.text, strlen(e.text)) == strlen(e.text));
		require(a.len == 4 && !memcmp(a.data, "kept", 5) && !a.failed);
	} else {
		require(utf8_valid(a.data, a.len) == a.len && !a.data[a.len]);
	}
	again = template_render(t, context, NULL, &b, NULL);
	/* strftime_now may give another time by then, so only the codes are compared */
	require(rc == again);
	buf_release(&a);
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = memchr(data, 0, size);
	size_t len = zero ? (size_t)(zero - data) : size;
	json_t *context = zero ? json_loadb((const char *)zero + 1, size - len - 1,
					    JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL)
			       : json_loads(usual, JSON_ALLOW_NUL, NULL);
	struct template *t;
	struct err e = {0};
	int rc = template_parse("fuzz", (const char *)data, len, &t, &e);

	if (rc < 0) {
		require(rc == -EINVAL && e.text[0]);
	} else {
		if (context)
			render_twice(t, context);
		template_free(t);
	}
	json_decref(context);
	return 0;
}
