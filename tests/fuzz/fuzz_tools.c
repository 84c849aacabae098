/* Any bytes as an answer with tool calls, in each format: the events do not depend on where the text is cut, complete
 * calls have JSON, nothing of a text without calls is lost, and single bytes give the text that tools.h promises. The
 * first byte chooses format and cuts. */
#include <stdint.h>

#include "tests/tools_check.h"

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

#define ONE(name) +1
enum { FORMATS = 0 TOOLS_FORMATS(ONE) };

static void push(struct seen *s, const char *text, size_t len, size_t step)
{
	for (size_t at = 0; at < len; at += step) {
		size_t before = s->text.len, n = MIN(step, len - at);

		tools_push(s->tools, text + at, n);
		see_pause(s);
		if (step == 1) {
			size_t end = at + 1 - tools_held(s->tools), given = s->text.len - before;

			CHECK(given <= end);
			CHECK(!given || !memcmp(s->text.data + before, text + end - given, given));
		}
	}
	seen_end(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, bytes, steps;
	struct buf text;
	size_t format;
	bool one;

	if (!size)
		return 0;
	format = data[0] % FORMATS;
	one = data[0] & 128;
	buf_init(&text, 1 << 24);
	utf8_replace((const char *)data + 1, size - 1, &text);
	seen_begin(&whole, format, one);
	push(&whole, text.data, text.len, MAX(text.len, (size_t)1));
	seen_begin(&bytes, format, one);
	push(&bytes, text.data, text.len, 1);
	seen_begin(&steps, format, one);
	push(&steps, text.data, text.len, 2 + (data[0] >> 3) % 16);
	CHECK(!whole.n_wrong && !bytes.n_wrong && !steps.n_wrong);
	CHECK(whole.all.len == bytes.all.len && whole.all.len == steps.all.len);
	CHECK(!whole.all.len || !memcmp(whole.all.data, bytes.all.data, whole.all.len));
	CHECK(!whole.all.len || !memcmp(whole.all.data, steps.all.data, whole.all.len));
	if (!whole.n_calls)
		CHECK(whole.text.len == text.len &&
		      (!text.len || !memcmp(whole.text.data, text.data, text.len)));
	seen_release(&whole);
	seen_release(&bytes);
	seen_release(&steps);
	buf_release(&text);
	return 0;
}
