#include "base/utf8.h"

#include <string.h>

size_t utf8_encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Table 3-7 of the Unicode standard: only the second byte's range depends on the first. */
int utf8_sequence(const char *p, size_t len, bool *ret_cut)
{
	const unsigned char *s = (const unsigned char *)p;
	unsigned char low = 0x80, high = 0xbf;
	int need;

	*ret_cut = false;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return -1;
	need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	switch (s[0]) {
	case 0xe0: low = 0xa0; break;
	case 0xed: high = 0x9f; break;
	case 0xf0: low = 0x90; break;
	case 0xf4: high = 0x8f; break;
	}
	for (int i = 1; i < need; i++) {
		if ((size_t)i == len) {
			*ret_cut = true;
			return -i;
		}
		if (s[i] < low || s[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return need;
}

size_t utf8_valid(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len) {
		bool cut;
		int n;

		while (len - at >= 8) {
			uint64_t w;

			memcpy(&w, text + at, 8);
			if (w & 0x8080808080808080u)
				break;
			at += 8;
		}
		if (at == len)
			break;
		n = utf8_sequence(text + at, len - at, &cut);
		if (n < 0)
			break;
		at += (size_t)n;
	}
	return at;
}

void utf8_replace(const char *text, size_t len, struct buf *out)
{
	size_t at = 0;

	while (at < len) {
		size_t good = utf8_valid(text + at, len - at);
		bool cut;

		buf_append(out, text + at, good);
		at += good;
		if (at == len)
			break;
		buf_puts(out, UTF8_REPLACEMENT_TEXT);
		at += (size_t)-utf8_sequence(text + at, len - at, &cut);
	}
}
