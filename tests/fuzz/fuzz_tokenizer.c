/* A tokenizer.json from an untrusted source: it opens or is refused with a sentence; a tokenizer that opens can
 * encode. */
#include <stdint.h>
#include <stdlib.h>

#include "protocol/tokenizer/detokenizer.h"
#include "protocol/tokenizer/tokenizer.h"

static void use(const struct tokenizer *t)
{
	static const char text[] =
		"Hello, w\u00f6rld's  12345\n\n <|im_end|> e\u0301\u0323 \u4e2d\xff "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct stops *stops = stops_new((const char *const[]){"aa"}, 1);
	struct detokenizer *d = detokenizer_new(t, stops);
	struct ids ids = {0};
	struct buf out;

	buf_init(&out, 1 << 20);
	if (tokenizer_encode(t, text, sizeof(text) - 1, true, NULL, &ids) < 0 ||
	    tokenizer_encode(t, text, sizeof(text) - 1, false, NULL, &ids) < 0)
		ids.len = 0;
	for (size_t i = 0; d && i < ids.len; i++) {
		size_t len;

		if (!tokenizer_bytes(t, ids.v[i], &len) || !len)
			abort();
		if (detokenizer_push(d, ids.v[i], &out) != 0)
			break;
	}
	if (d && detokenizer_finish(d, &out) < 0)
		abort();
	detokenizer_free(d);
	stops_free(stops);
	ids_release(&ids);
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tokenizer *t = NULL;
	struct err e = {0};
	int r = tokenizer_parse("input", (const char *)data, size, &t, &e);

	if (r < 0) {
		if (t || e.code != -r || !e.text[0])
			abort();
		return 0;
	}
	use(t);
	tokenizer_free(t);
	return 0;
}
