#include "base/utf8.h"
#include "protocol/text/jinja_pystr.h"

#include <string.h>
#include <utf8proc.h>

size_t pystr_next(const char *s, size_t n, uint32_t *ret_cp)
{
	size_t len;
	bool cut;

	if (!n || utf8_sequence(s, n, &cut) < 0) {
		*ret_cp = UTF8_REPLACEMENT;
		return n != 0;
	}
	*ret_cp = utf8_decode(s, &len);
	return len;
}

size_t pystr_prev(const char *s, size_t n, uint32_t *ret_cp)
{
	size_t back = 1;

	if (!n) {
		*ret_cp = 0xfffd;
		return 0;
	}
	while (back < 4 && back < n && ((unsigned char)s[n - back] & 0xc0) == 0x80)
		back++;
	if (pystr_next(s + n - back, back, ret_cp) == back)
		return back;
	*ret_cp = 0xfffd;
	return 1;
}

void pystr_put(struct buf *b, uint32_t cp)
{
	char bytes[4];

	buf_append(b, bytes, utf8_encode(cp, bytes));
}

void pystr_clean(char *s)
{
	size_t n = strlen(s), len;
	uint32_t cp;

	for (size_t i = 0; i < n; i += len) {
		len = pystr_next(s + i, n - i, &cp);
		if (len == 1 && (unsigned char)s[i] >= 0x80)
			s[i] = '?';
	}
}

/* Bytes of s that are ASCII, eight at a time. */
static size_t ascii_run(const char *s, size_t n)
{
	size_t i = 0;
	uint64_t w;

	for (; i + 8 <= n; i += 8) {
		memcpy(&w, s + i, 8);
		if (w & 0x8080808080808080ULL)
			break;
	}
	while (i < n && (unsigned char)s[i] < 0x80)
		i++;
	return i;
}

size_t pystr_length(const char *s, size_t n)
{
	size_t count = 0;
	uint32_t cp;

	for (size_t i = 0; i < n; count++) {
		size_t run = ascii_run(s + i, n - i);

		i += run;
		count += run;
		if (i == n)
			break;
		i += pystr_next(s + i, n - i, &cp);
	}
	return count;
}

size_t pystr_offset(const char *s, size_t n, size_t index)
{
	size_t i = 0;
	uint32_t cp;

	while (i < n && index) {
		size_t run = ascii_run(s + i, n - i < index ? n - i : index);

		i += run;
		index -= run;
		if (i == n || !index)
			break;
		i += pystr_next(s + i, n - i, &cp);
		index--;
	}
	return i;
}

size_t pystr_find(const char *s, size_t n, const char *needle, size_t m)
{
	const char *p;

	if (!m)
		return 0;
	if (m > n)
		return SIZE_MAX;
	p = memmem(s, n, needle, m);
	return p ? (size_t)(p - s) : SIZE_MAX;
}

enum { RFIND_SHORT = 32 };

static uint64_t mul_mod(uint64_t a, uint64_t b)
{
	const uint64_t p = (1ULL << 61) - 1;

	return (uint64_t)((unsigned __int128)a * b % p);
}

/* Rabin-Karp from the back, modulo 2^61 - 1: the time is linear for hostile needles too. */
static size_t rfind_long(const char *s, size_t n, const char *needle, size_t m)
{
	const uint64_t p = (1ULL << 61) - 1, base = 0x1f3d5b79;
	const unsigned char *u = (const unsigned char *)s, *v = (const unsigned char *)needle;
	uint64_t want = 0, have = 0, top = 1;

	for (size_t i = m; i-- > 0;) {
		want = (mul_mod(want, base) + v[i]) % p;
		have = (mul_mod(have, base) + u[n - m + i]) % p;
		if (i)
			top = mul_mod(top, base);
	}
	for (size_t at = n - m;; at--) {
		if (have == want && !memcmp(s + at, needle, m))
			return at;
		if (!at)
			return SIZE_MAX;
		have = (have + p - mul_mod(u[at + m - 1], top)) % p;
		have = (mul_mod(have, base) + u[at - 1]) % p;
	}
}

size_t pystr_rfind(const char *s, size_t n, const char *needle, size_t m)
{
	const char *p;

	if (!m)
		return n;
	if (m > n)
		return SIZE_MAX;
	if (m > RFIND_SHORT)
		return rfind_long(s, n, needle, m);
	for (size_t end = n - m + 1; (p = memrchr(s, needle[0], end)); end = (size_t)(p - s))
		if (!memcmp(p, needle, m))
			return (size_t)(p - s);
	return SIZE_MAX;
}

static utf8proc_category_t category(uint32_t cp)
{
	return utf8proc_category((utf8proc_int32_t)cp);
}

bool pystr_isspace(uint32_t cp)
{
	if (cp < 0x80)
		return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20);
	return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool pystr_isalpha(uint32_t cp)
{
	switch (category(cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO: return true;
	default: return false;
	}
}

bool pystr_isdecimal(uint32_t cp)
{
	if (cp < 0x80)
		return cp >= '0' && cp <= '9';
	return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool pystr_isdigit(uint32_t cp)
{
	/* Superscripts, circled digits and their like: digits, yet not decimal ones. */
	static const uint32_t ranges[][2] = {
		{0xb2, 0xb3},	    {0xb9, 0xb9},	{0x1369, 0x1371},   {0x19da, 0x19da},
		{0x2070, 0x2070},   {0x2074, 0x2079},	{0x2080, 0x2089},   {0x2460, 0x2468},
		{0x2474, 0x247c},   {0x2488, 0x2490},	{0x24ea, 0x24ea},   {0x24f5, 0x24fd},
		{0x24ff, 0x24ff},   {0x2776, 0x277e},	{0x2780, 0x2788},   {0x278a, 0x2792},
		{0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
	};

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		if (cp >= ranges[i][0] && cp <= ranges[i][1])
			return true;
	return pystr_isdecimal(cp);
}

bool pystr_isnumeric(uint32_t cp)
{
	switch (category(cp)) {
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO: return true;
	default: return false;
	}
}

bool pystr_isalnum(uint32_t cp)
{
	return pystr_isalpha(cp) || pystr_isnumeric(cp);
}

bool pystr_isprintable(uint32_t cp)
{
	if (cp < 0x7f)
		return cp >= 0x20;
	switch (category(cp)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
	case UTF8PROC_CATEGORY_ZS: return false;
	default: return true;
	}
}

bool pystr_isupper(uint32_t cp)
{
	return category(cp) == UTF8PROC_CATEGORY_LU;
}

bool pystr_islower(uint32_t cp)
{
	return category(cp) == UTF8PROC_CATEGORY_LL;
}

bool pystr_istitle(uint32_t cp)
{
	return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool pystr_id_start(uint32_t cp)
{
	if (cp < 0x80)
		return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || cp == '_';
	return pystr_isalpha(cp) || category(cp) == UTF8PROC_CATEGORY_NL;
}

bool pystr_id_continue(uint32_t cp)
{
	if (cp < 0x80)
		return pystr_id_start(cp) || (cp >= '0' && cp <= '9');
	if (pystr_id_start(cp))
		return true;
	switch (category(cp)) {
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_PC: return true;
	default: return false;
	}
}

size_t pystr_skip_space(const char *s, size_t n)
{
	size_t i = 0, len;
	uint32_t cp;

	for (; i < n; i += len) {
		len = pystr_next(s + i, n - i, &cp);
		if (!pystr_isspace(cp))
			break;
	}
	return i;
}

size_t pystr_trim_space(const char *s, size_t n)
{
	uint32_t cp;
	size_t len;

	for (; n; n -= len) {
		len = pystr_prev(s, n, &cp);
		if (!pystr_isspace(cp))
			break;
	}
	return n;
}

size_t pystr_line(const char *s, size_t n, size_t *ret_break)
{
	size_t i = 0, len;
	uint32_t cp;

	for (; i < n; i += len) {
		len = pystr_next(s + i, n - i, &cp);
		if (cp == '\r' && i + 1 < n && s[i + 1] == '\n') {
			*ret_break = 2;
			return i;
		}
		if ((cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
		    cp == 0x2028 || cp == 0x2029) {
			*ret_break = len;
			return i;
		}
	}
	*ret_break = 0;
	return n;
}
