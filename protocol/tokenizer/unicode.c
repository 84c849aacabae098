/* Classes of code points, and NFC.
 *
 * The engine behind Hugging Face's splitting patterns, Oniguruma, has the classes of Unicode 16. Hugging Face's
 * normalizer has the data of Unicode 9: younger marks do not reorder, and younger letters do not compose. utf8proc has
 * the data of the Unicode version that the installed library knows. So of two lists below, `young` adds classes that a
 * utf8proc of Unicode 15.0 lacks, and `inert` keeps code points that are younger than Unicode 9 out of NFC. */
#include "protocol/tokenizer/unicode.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"

struct range {
	uint32_t first, last;
};

/* The letters, numbers and marks that came with Unicode 15.1 and 16, for a utf8proc that does not know them. */
static const struct {
	struct range r;
	uint8_t class;
} young[] = {
	{{0x0897, 0x0897}, UNICODE_MARK},     {{0x1c89, 0x1c8a}, UNICODE_LETTER},
	{{0xa7cb, 0xa7cd}, UNICODE_LETTER},   {{0xa7da, 0xa7dc}, UNICODE_LETTER},
	{{0x105c0, 0x105f3}, UNICODE_LETTER}, {{0x10d40, 0x10d49}, UNICODE_NUMBER},
	{{0x10d4a, 0x10d65}, UNICODE_LETTER}, {{0x10d69, 0x10d6d}, UNICODE_MARK},
	{{0x10d6f, 0x10d85}, UNICODE_LETTER}, {{0x10ec2, 0x10ec4}, UNICODE_LETTER},
	{{0x10efc, 0x10efc}, UNICODE_MARK},   {{0x11380, 0x11389}, UNICODE_LETTER},
	{{0x1138b, 0x1138b}, UNICODE_LETTER}, {{0x1138e, 0x1138e}, UNICODE_LETTER},
	{{0x11390, 0x113b5}, UNICODE_LETTER}, {{0x113b7, 0x113b7}, UNICODE_LETTER},
	{{0x113b8, 0x113c0}, UNICODE_MARK},   {{0x113c2, 0x113c2}, UNICODE_MARK},
	{{0x113c5, 0x113c5}, UNICODE_MARK},   {{0x113c7, 0x113ca}, UNICODE_MARK},
	{{0x113cc, 0x113d0}, UNICODE_MARK},   {{0x113d1, 0x113d1}, UNICODE_LETTER},
	{{0x113d2, 0x113d2}, UNICODE_MARK},   {{0x113d3, 0x113d3}, UNICODE_LETTER},
	{{0x113e1, 0x113e2}, UNICODE_MARK},   {{0x116d0, 0x116e3}, UNICODE_NUMBER},
	{{0x11bc0, 0x11be0}, UNICODE_LETTER}, {{0x11bf0, 0x11bf9}, UNICODE_NUMBER},
	{{0x11f5a, 0x11f5a}, UNICODE_MARK},   {{0x13460, 0x143fa}, UNICODE_LETTER},
	{{0x16100, 0x1611d}, UNICODE_LETTER}, {{0x1611e, 0x1612f}, UNICODE_MARK},
	{{0x16130, 0x16139}, UNICODE_NUMBER}, {{0x16d40, 0x16d6c}, UNICODE_LETTER},
	{{0x16d70, 0x16d79}, UNICODE_NUMBER}, {{0x18cff, 0x18cff}, UNICODE_LETTER},
	{{0x1ccf0, 0x1ccf9}, UNICODE_NUMBER}, {{0x1e5d0, 0x1e5ed}, UNICODE_LETTER},
	{{0x1e5ee, 0x1e5ef}, UNICODE_MARK},   {{0x1e5f0, 0x1e5f0}, UNICODE_LETTER},
	{{0x1e5f1, 0x1e5fa}, UNICODE_NUMBER}, {{0x2ebf0, 0x2ee5d}, UNICODE_LETTER},
};

/* Code points younger than Unicode 9 (up to Unicode 17) that have a combining class, or take part in a composition.
 * Hugging Face's NFC leaves them as they are. */
static const struct range inert[] = {
	{0x07fd, 0x07fd},   {0x0897, 0x089f},	{0x08ca, 0x08d3},   {0x09fe, 0x09fe},
	{0x0c3c, 0x0c3c},   {0x0d3b, 0x0d3c},	{0x0eba, 0x0eba},   {0x1715, 0x1715},
	{0x1abf, 0x1add},   {0x1ae0, 0x1aeb},	{0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
	{0x105c9, 0x105c9}, {0x105d2, 0x105d2}, {0x105da, 0x105da}, {0x105e4, 0x105e4},
	{0x10d24, 0x10d27}, {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efa, 0x10efb},
	{0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
	{0x1133b, 0x1133b}, {0x11382, 0x11385}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e},
	{0x11390, 0x11391}, {0x113b8, 0x113b8}, {0x113bb, 0x113bb}, {0x113c2, 0x113c2},
	{0x113c5, 0x113c5}, {0x113c7, 0x113c9}, {0x113ce, 0x113d0}, {0x1145e, 0x1145e},
	{0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
	{0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
	{0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
	{0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x1611e, 0x16129}, {0x1612f, 0x1612f},
	{0x16d63, 0x16d63}, {0x16d67, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f},
	{0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
	{0x1e5ee, 0x1e5ef}, {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef},
	{0x1e6f5, 0x1e6f5},
};

static bool is_inert(uint32_t c)
{
	size_t low = 0, high = ARRAY_SIZE(inert);

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (inert[mid].last < c)
			low = mid + 1;
		else
			high = mid;
	}
	return low < ARRAY_SIZE(inert) && inert[low].first <= c;
}

/* ---- the table ---- */

static uint8_t class_of(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU ... UTF8PROC_CATEGORY_LO: return UNICODE_LETTER;
	case UTF8PROC_CATEGORY_MN ... UTF8PROC_CATEGORY_ME: return UNICODE_MARK;
	case UTF8PROC_CATEGORY_ND ... UTF8PROC_CATEGORY_NO: return UNICODE_NUMBER;
	case UTF8PROC_CATEGORY_ZS ... UTF8PROC_CATEGORY_ZP: return UNICODE_SPACE;
	case UTF8PROC_CATEGORY_CC:
		if (c == '\r' || c == '\n')
			return UNICODE_NEWLINE;
		return c == '\t' || c == '\v' || c == '\f' || c == 0x85 ? UNICODE_SPACE
									: UNICODE_OTHER;
	default: return UNICODE_OTHER;
	}
}

/* Returns whether the page (256 code points) is in plane 4 to 13, 15 or 16. All code points there are UNICODE_OTHER,
 * because they are unassigned or private. */
static bool is_plain_page(uint32_t page)
{
	uint32_t plane = page >> 8;

	return (plane >= 4 && plane <= 13) || plane >= 15;
}

/* Sets the flags that follow from c. If c has a canonical decomposition, and composing that does not give c back, NFC
 * changes c: c gets the flag UNICODE_NFC_MAYBE. If composing gives c back, the last character of the decomposition gets
 * the flag, because NFC may join this character to those before it. */
static void flag_nfc(const struct unicode *u, uint32_t c)
{
	const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
	utf8proc_int32_t parts[8], last;
	utf8proc_ssize_t n;

	if (p->combining_class)
		u->pages[u->page_of[c >> 8]][c & 255] |= UNICODE_COMBINING;
	if (p->decomp_seqindex == UINT16_MAX || p->decomp_type)
		return;
	n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, ARRAY_SIZE(parts),
				    UTF8PROC_DECOMPOSE, NULL);
	if (n < 1 || (size_t)n > ARRAY_SIZE(parts))
		return;
	last = parts[n - 1];
	n = utf8proc_normalize_utf32(parts, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	if (n == 1 && parts[0] == (utf8proc_int32_t)c)
		c = (uint32_t)last;
	u->pages[u->page_of[c >> 8]][c & 255] |= UNICODE_NFC_MAYBE;
}

/* Fills in the entries of all pages but the plain one, which stays 0: UNICODE_OTHER. (fold_pages then keeps one of
 * several equal pages.) */
static void fill(struct unicode *u)
{
	for (uint32_t page = 0; page < UNICODE_END >> 8; page++)
		if (!is_plain_page(page))
			for (uint32_t c = page << 8; c < (page + 1) << 8; c++)
				u->pages[u->page_of[page]][c & 255] = class_of(c);
	for (size_t i = 0; i < ARRAY_SIZE(young); i++)
		for (uint32_t c = young[i].r.first; c <= young[i].r.last; c++) {
			uint8_t *entry = &u->pages[u->page_of[c >> 8]][c & 255];

			if (*entry == UNICODE_OTHER)
				*entry = young[i].class;
		}
	for (uint32_t page = 0; page < UNICODE_END >> 8; page++)
		if (!is_plain_page(page))
			for (uint32_t c = page << 8; c < (page + 1) << 8; c++)
				flag_nfc(u, c);
	/* Hangul vowels and trailing consonants may join the character before them. */
	for (uint32_t c = 0x1161; c <= 0x1175; c++)
		u->pages[u->page_of[c >> 8]][c & 255] |= UNICODE_NFC_MAYBE;
	for (uint32_t c = 0x11a8; c <= 0x11c2; c++)
		u->pages[u->page_of[c >> 8]][c & 255] |= UNICODE_NFC_MAYBE;
	for (size_t i = 0; i < ARRAY_SIZE(inert); i++)
		for (uint32_t c = inert[i].first; c <= inert[i].last; c++)
			u->pages[u->page_of[c >> 8]][c & 255] &= UNICODE_CLASS;
}

/* Removes each page that is equal to an earlier one, and lets page_of name the earlier one. Returns the number of
 * pages left. */
static uint16_t fold_pages(struct unicode *u, uint16_t n_pages)
{
	uint16_t kept = 0, moved[UNICODE_END >> 8];

	for (uint16_t i = 0; i < n_pages; i++) {
		uint16_t same = 0;

		while (same < kept && memcmp(u->pages[same], u->pages[i], sizeof(*u->pages)) != 0)
			same++;
		if (same == kept)
			memmove(u->pages[kept++], u->pages[i], sizeof(*u->pages));
		moved[i] = same;
	}
	for (size_t i = 0; i < ARRAY_SIZE(u->page_of); i++)
		u->page_of[i] = moved[u->page_of[i]];
	return kept;
}

static struct unicode table;

static void build(void)
{
	uint16_t n = 0, plain = 0;
	void *pages;

	for (uint32_t page = 0; page < UNICODE_END >> 8; page++) {
		if (!is_plain_page(page))
			table.page_of[page] = n++;
		else
			table.page_of[page] = plain ? plain : (plain = n++);
	}
	table.pages = calloc(n, sizeof(*table.pages));
	if (!table.pages)
		return;
	fill(&table);
	n = fold_pages(&table, n);
	pages = realloc(table.pages, n * sizeof(*table.pages));
	if (pages)
		table.pages = pages;
}

const struct unicode *unicode_table(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, build);
	return table.pages ? &table : NULL;
}

/* ---- word characters ---- */

bool unicode_is_word(const struct unicode *u, uint32_t c)
{
	switch (unicode_entry(u, c) & UNICODE_CLASS) {
	case UNICODE_LETTER:
	case UNICODE_MARK: return true;
	case UNICODE_NUMBER: return utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_NO;
	case UNICODE_OTHER: break;
	default: return false;
	}
	/* Other characters of \w: Join_Control; the enclosed letters, which are Alphabetic though they are symbols;
	 * connecting punctuation. */
	return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
	       (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
	       (c >= 0x1f170 && c <= 0x1f189) ||
	       utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_PC;
}

/* ---- NFC ---- */

/* The decomposed code points of one unit of normalization (unicode.h): a character without flags (or the first one of
 * the text), and the characters with flags that follow it. A first character of `inert` is left out. */
struct unit {
	utf8proc_int32_t *v; /* owned */
	size_t len, cap;
};

static int unit_push(struct unit *s, uint32_t c)
{
	enum { LONGEST_DECOMPOSITION = 4 };
	utf8proc_ssize_t n;

	if (!array_grow(s->v, s->cap, s->len + LONGEST_DECOMPOSITION))
		return -ENOMEM;
	n = utf8proc_decompose_char((utf8proc_int32_t)c, s->v + s->len, LONGEST_DECOMPOSITION,
				    UTF8PROC_DECOMPOSE, NULL);
	if (n < 1 || n > LONGEST_DECOMPOSITION) {
		s->v[s->len] = (utf8proc_int32_t)c;
		n = 1;
	}
	s->len += (size_t)n;
	return 0;
}

static uint8_t combining_class(utf8proc_int32_t c)
{
	return (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Sorts marks by combining class, and is stable. A few marks, the usual case, are sorted by insertion. More are sorted
 * by counting, so that hostile text costs linear time. -ENOMEM. */
static int sort_marks(utf8proc_int32_t *v, size_t n)
{
	enum { FEW = 16 };
	size_t start[257] = {0};
	utf8proc_int32_t *copy;

	if (n <= FEW) {
		for (size_t i = 1; i < n; i++) {
			utf8proc_int32_t c = v[i];
			size_t k = i;

			for (; k && combining_class(v[k - 1]) > combining_class(c); k--)
				v[k] = v[k - 1];
			v[k] = c;
		}
		return 0;
	}
	copy = malloc(n * sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, v, n * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		start[combining_class(v[i]) + 1]++;
	for (size_t i = 1; i < ARRAY_SIZE(start); i++)
		start[i] += start[i - 1];
	for (size_t i = 0; i < n; i++)
		v[start[combining_class(copy[i])]++] = copy[i];
	free(copy);
	return 0;
}

/* Orders the unit's marks, composes the unit, appends it as UTF-8 and empties it. */
static int unit_flush(struct unit *s, struct buf *out)
{
	utf8proc_ssize_t n;

	for (size_t i = 0; i < s->len;) {
		size_t end = i + 1;

		if (combining_class(s->v[i])) {
			while (end < s->len && combining_class(s->v[end]))
				end++;
			if (sort_marks(s->v + i, end - i) < 0)
				return -ENOMEM;
		}
		i = end;
	}
	n = utf8proc_normalize_utf32(s->v, (utf8proc_ssize_t)s->len,
				     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	assert(n >= 0); /* utf8proc_normalize_utf32 cannot fail with these options */
	for (utf8proc_ssize_t i = 0; i < n; i++) {
		char text[4];

		buf_append(out, text, utf8_encode((uint32_t)s->v[i], text));
	}
	s->len = 0;
	return 0;
}

/* Returns the end of the run of characters below U+0300 that begins at `at`. None of them has a flag. */
static size_t skip_low(const char *text, size_t len, size_t at)
{
	while (at < len) {
		uint64_t w;

		if (len - at >= 8) {
			memcpy(&w, text + at, 8);
			if (!(w & 0x8080808080808080u)) {
				at += 8;
				continue;
			}
		}
		if ((unsigned char)text[at] >= 0xcc)
			break;
		at++;
	}
	return at;
}

/* Returns the start of the first unit, from `at` on, that NFC may change; len: there is none. `at` must be the start of
 * a unit. This is the quick check of UAX #15. */
static size_t first_unit(const struct unicode *u, const char *text, size_t len, size_t at)
{
	uint8_t last_class = 0;
	size_t unit = at, n;

	for (; at < len; at += n) {
		uint32_t c = utf8_decode(text + at, &n);
		uint8_t entry = unicode_entry(u, c), class;

		if (!(entry & (UNICODE_NFC_MAYBE | UNICODE_COMBINING))) {
			size_t next = skip_low(text, len, at + n);

			unit = at;
			last_class = 0;
			if (next > at + n) {
				/* the unit starts at the last character that was skipped */
				unit = next - 1;
				while (((unsigned char)text[unit] & 0xc0) == 0x80)
					unit--;
				n = next - at;
			}
			continue;
		}
		class = entry & UNICODE_COMBINING ? combining_class((utf8proc_int32_t)c) : 0;
		if (entry & UNICODE_NFC_MAYBE || class < last_class)
			return unit;
		last_class = class;
	}
	return len;
}

int unicode_nfc(const struct unicode *u, const char *text, size_t len, struct buf *out)
{
	size_t at = first_unit(u, text, len, 0), done = 0, before = out->len;
	struct unit unit = {0};
	int r = 0;

	if (at == len)
		return 0;
	while (at < len && !r) {
		size_t n;
		uint32_t c = utf8_decode(text + at, &n);

		buf_append(out, text + done, at - done);
		/* a character that is younger than the data of Hugging Face's NFC does not compose */
		if (is_inert(c))
			buf_append(out, text + at, n);
		else
			r = unit_push(&unit, c);
		for (at += n; at < len && !r; at += n) {
			c = utf8_decode(text + at, &n);
			if (!(unicode_entry(u, c) & (UNICODE_NFC_MAYBE | UNICODE_COMBINING)))
				break;
			r = unit_push(&unit, c);
		}
		if (!r)
			r = unit_flush(&unit, out);
		done = at;
		if (at < len)
			at = first_unit(u, text, len, at);
	}
	free(unit.v);
	if (!r)
		buf_append(out, text + done, len - done);
	if (!r && !out->failed)
		return 1;
	out->len = before;
	if (out->data)
		out->data[before] = 0;
	return -ENOMEM;
}
