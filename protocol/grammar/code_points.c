#include "protocol/grammar/code_points.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"

enum { LAST = 0x10ffff };

void code_points_release(struct code_points *s)
{
	free(s->v);
	*s = (struct code_points){0};
}

void code_points_add(struct code_points *s, uint32_t lo, uint32_t hi)
{
	if (array_grow(s->v, s->cap, s->n + 1))
		s->v[s->n++] = (struct grammar_range){lo, hi};
	else
		s->failed = true;
}

static int by_start(const void *x, const void *y)
{
	const struct grammar_range *p = x, *q = y;

	return p->lo < q->lo ? -1 : p->lo > q->lo;
}

void code_points_settle(struct code_points *s)
{
	size_t kept = 0;

	bool sorted = true;

	for (size_t i = 1; i < s->n && sorted; i++)
		sorted = s->v[i - 1].lo <= s->v[i].lo;
	if (!sorted)
		qsort(s->v, s->n, sizeof(*s->v), by_start);
	for (size_t i = 0; i < s->n; i++) {
		if (kept && s->v[i].lo <= s->v[kept - 1].hi + 1)
			s->v[kept - 1].hi = MAX(s->v[kept - 1].hi, s->v[i].hi);
		else
			s->v[kept++] = s->v[i];
	}
	s->n = kept;
}

void code_points_invert(struct code_points *s)
{
	uint32_t from = 0;
	size_t n = s->n;

	for (size_t i = 0; i < n; i++) {
		struct grammar_range r = s->v[i];

		s->v[i] = (struct grammar_range){from, r.lo - 1};
		from = r.hi + 1;
	}
	if (from <= LAST)
		code_points_add(s, from, LAST);
	/* Nothing is before a first range that begins with 0. */
	if (n && s->n && s->v[0].hi == UINT32_MAX) {
		memmove(s->v, s->v + 1, (s->n - 1) * sizeof(*s->v));
		s->n--;
	}
}

bool code_points_have(const struct code_points *s, uint32_t c)
{
	for (size_t i = 0; i < s->n && s->v[i].lo <= c; i++) {
		if (c <= s->v[i].hi)
			return true;
	}
	return false;
}

/* Unicode as runs of code points with the same category: some 3,300. A run ends where the next one begins. */
static struct {
	uint32_t first;
	uint8_t category;
} runs[8192];
static size_t n_runs;
static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void make_runs(void)
{
	for (uint32_t c = 0; c <= LAST; c++) {
		uint8_t category = (uint8_t)utf8proc_category((utf8proc_int32_t)c);

		if (n_runs && runs[n_runs - 1].category == category)
			continue;
		assert(n_runs + 1 < ARRAY_SIZE(runs));
		runs[n_runs].first = c;
		runs[n_runs++].category = category;
	}
	runs[n_runs].first = LAST + 1;
}

/* Adds the code points from `from` on whose categories are in the bits of `mask`. */
static void add_categories(struct code_points *s, uint32_t from, uint32_t mask)
{
	pthread_once(&runs_once, make_runs);
	for (size_t i = 0; i < n_runs; i++) {
		if (runs[i + 1].first > from && mask >> runs[i].category & 1)
			code_points_add(s, MAX(runs[i].first, from), runs[i + 1].first - 1);
	}
}

#define BIT(category) (UINT32_C(1) << UTF8PROC_CATEGORY_##category)

static const struct {
	char name[3];
	uint32_t mask;
} categories[] = {
	{"L", BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO)},
	{"M", BIT(MN) | BIT(MC) | BIT(ME)},
	{"N", BIT(ND) | BIT(NL) | BIT(NO)},
	{"P", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
	{"S", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)},
	{"Z", BIT(ZS) | BIT(ZL) | BIT(ZP)},
	{"Lu", BIT(LU)},
	{"Ll", BIT(LL)},
	{"Lt", BIT(LT)},
	{"Lm", BIT(LM)},
	{"Lo", BIT(LO)},
	{"Mn", BIT(MN)},
	{"Mc", BIT(MC)},
	{"Me", BIT(ME)},
	{"Nd", BIT(ND)},
	{"Nl", BIT(NL)},
	{"No", BIT(NO)},
	{"Pc", BIT(PC)},
	{"Pd", BIT(PD)},
	{"Ps", BIT(PS)},
	{"Pe", BIT(PE)},
	{"Pi", BIT(PI)},
	{"Pf", BIT(PF)},
	{"Po", BIT(PO)},
	{"Sm", BIT(SM)},
	{"Sc", BIT(SC)},
	{"Sk", BIT(SK)},
	{"So", BIT(SO)},
	{"Zs", BIT(ZS)},
};

bool code_points_add_category(struct code_points *s, const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(categories); i++) {
		if (strlen(categories[i].name) == len && !memcmp(categories[i].name, name, len)) {
			add_categories(s, 0, categories[i].mask);
			return true;
		}
	}
	return false;
}

static void add_digits(struct code_points *s, bool most)
{
	code_points_add(s, '0', '9');
	if (most)
		add_categories(s, 0x80, BIT(ND));
}

static void add_words(struct code_points *s, bool most)
{
	code_points_add(s, '0', '9');
	code_points_add(s, 'A', 'Z');
	code_points_add(s, '_', '_');
	code_points_add(s, 'a', 'z');
	if (most)
		add_categories(s, 0x80,
			       BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO) | BIT(MN) | BIT(MC) |
				       BIT(ME) | BIT(ND) | BIT(NL) | BIT(NO) | BIT(PC));
}

static void add_spaces(struct code_points *s, bool most)
{
	static const struct grammar_range all[] = {
		{'\t', '\r'},	  {' ', ' '},	    {0xa0, 0xa0},
		{0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
		{0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
	};
	static const struct grammar_range some[] = {{0x1c, 0x1f},
						    {0x85, 0x85},
						    {0x180e, 0x180e},
						    {0xfeff, 0xfeff}};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		code_points_add(s, all[i].lo, all[i].hi);
	for (size_t i = 0; most && i < ARRAY_SIZE(some); i++)
		code_points_add(s, some[i].lo, some[i].hi);
}

void code_points_move(struct code_points *s, struct code_points *from, bool inverted)
{
	code_points_settle(from);
	if (inverted)
		code_points_invert(from);
	for (size_t i = 0; i < from->n; i++)
		code_points_add(s, from->v[i].lo, from->v[i].hi);
	s->failed = s->failed || from->failed;
	code_points_release(from);
}

void code_points_add_class(struct code_points *s, char letter, bool most)
{
	bool inverted = letter == 'D' || letter == 'S' || letter == 'W';
	struct code_points own = {0};

	if (inverted)
		most = !most;
	switch (letter) {
	case 'd':
	case 'D': add_digits(&own, most); break;
	case 's':
	case 'S': add_spaces(&own, most); break;
	default: add_words(&own, most); break;
	}
	code_points_move(s, &own, inverted);
}
