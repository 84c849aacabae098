#include "kernels/tuning/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/macros.h"

#define FIRST_LINE "tigon tuning 1"

enum {
	TEXT_MAX = 8 << 20,
	ROWS_MAX = 65536,
	FIELDS = 13,
	SIZE_BUCKET_MOST = 1 << 28,
	UNITS_MAX = 1 << 20,
	CUT_TEXT_MAX = 256,
};

#define US_MAX 1e12 /* longest time in microseconds: eleven days */

const uint32_t tuning_m_buckets[TUNING_M_BUCKETS] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048};

static const char *const family_names[TUNING_FAMILIES] = {
	[TUNING_NONE] = "none",
	[TUNING_PRODUCT] = "product",
	[TUNING_EXPERTS] = "experts",
	[TUNING_ATTENTION] = "attention",
	[TUNING_DECODE_STEP] = "decode_step",
};

#define PRODUCTS (1u << TUNING_PRODUCT | 1u << TUNING_EXPERTS | 1u << TUNING_DECODE_STEP)

/* The values that a cut may have, and the families that use them. Results are right with all of them; only chains
 * changes bits. tile_blocks and blocks are even, because the panels of gate and up alternate. */
static const struct value {
	const char *name;
	size_t offset;
	uint32_t least, most, multiple;
	unsigned families;
} values[] = {
	{"tile_rows", offsetof(struct tuning_cut, tile_rows), 1, 16, 1, PRODUCTS},
	{"tile_blocks", offsetof(struct tuning_cut, tile_blocks), 2, 8, 2, PRODUCTS},
	{"blocks", offsetof(struct tuning_cut, blocks), 2, 32, 2, PRODUCTS},
	{"row_block", offsetof(struct tuning_cut, row_block), 16, 1024, 16, PRODUCTS},
	{"ahead", offsetof(struct tuning_cut, ahead), 64, 65536, 64, PRODUCTS},
	{"chains", offsetof(struct tuning_cut, chains), 1, 2, 1, PRODUCTS},
	{"queries", offsetof(struct tuning_cut, queries), 1, 64, 1, 1u << TUNING_ATTENTION},
};

static uint32_t get(const struct tuning_cut *cut, const struct value *v)
{
	uint32_t x;

	memcpy(&x, (const char *)cut + v->offset, sizeof(x));
	return x;
}

static void set(struct tuning_cut *cut, const struct value *v, uint32_t x)
{
	memcpy((char *)cut + v->offset, &x, sizeof(x));
}

/* ---- buckets ---- */

size_t tuning_m_bucket(uint64_t m)
{
	size_t i = 0;

	while (i + 1 < TUNING_M_BUCKETS && tuning_m_buckets[i] < m)
		i++;
	return i;
}

uint32_t tuning_size_bucket(uint64_t size)
{
	uint32_t bucket = 1;

	while (bucket < size && bucket < SIZE_BUCKET_MOST)
		bucket *= 2;
	return bucket;
}

struct tuning_place tuning_place_of(enum tuning_family family, uint64_t n, uint64_t k, uint64_t m)
{
	return (struct tuning_place){family, tuning_size_bucket(n), tuning_size_bucket(k),
				     tuning_m_buckets[tuning_m_bucket(m)]};
}

/* ---- cuts ---- */

struct tuning_cut tuning_over(struct tuning_cut over, struct tuning_cut under)
{
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (get(&over, &values[i]))
			set(&under, &values[i], get(&over, &values[i]));
	return under;
}

struct tuning_cut tuning_cut_of(struct tuning_cut cut, enum tuning_family family)
{
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (!(values[i].families >> family & 1))
			set(&cut, &values[i], 0);
	return cut;
}

bool tuning_equal(const struct tuning_cut *a, const struct tuning_cut *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (get(a, &values[i]) != get(b, &values[i]))
			return false;
	return true;
}

void tuning_cut_text(const struct tuning_cut *cut, char *ret, size_t size)
{
	size_t n = 0;

	snprintf(ret, size, "-");
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (get(cut, &values[i]) && n < size)
			n += (size_t)snprintf(ret + n, size - n, "%s%s=%u", n ? " " : "",
					      values[i].name, get(cut, &values[i]));
}

/* Reads a number of one to nine decimal digits. Returns false if the text is no such number, or if the number is not
 * from least to most. */
static bool read_number(const char *text, size_t len, uint32_t least, uint32_t most, uint32_t *ret)
{
	uint64_t x = 0;

	if (!len || len > 9)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		x = x * 10 + (uint64_t)(text[i] - '0');
	}
	if (x < least || x > most)
		return false;
	*ret = (uint32_t)x;
	return true;
}

static const struct value *find_value(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (strlen(values[i].name) == len && !memcmp(values[i].name, name, len))
			return &values[i];
	return NULL;
}

static int bad_value(const struct value *v, const char *text, size_t len, struct err *e)
{
	char multiple[32] = "";

	if (v->multiple > 1)
		snprintf(multiple, sizeof(multiple), ", a multiple of %u", v->multiple);
	return err_set(e, EINVAL, "%s is %u to %u%s, not \"%.*s\"", v->name, v->least, v->most,
		       multiple, (int)MIN(len, (size_t)64), text);
}

int tuning_parse_cut(const char *text, enum tuning_family family, struct tuning_cut *ret,
		     struct err *e)
{
	struct tuning_cut cut = {0};

	if (!strcmp(text, "-")) {
		*ret = cut;
		return 0;
	}
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, " "), name = strcspn(p, "=");
		const struct value *v = name < len ? find_value(p, name) : NULL;
		uint32_t x = 0;

		if (!v)
			return err_set(e, EINVAL,
				       "\"%.*s\" is no value of a cut: - or name=N, with the names "
				       "tile_rows, tile_blocks, blocks, row_block, ahead, chains "
				       "and queries",
				       (int)MIN(len, (size_t)64), p);
		if (family != TUNING_NONE && !(v->families >> family & 1))
			return err_set(e, EINVAL, "%s has no %s", family_names[family], v->name);
		if (get(&cut, v))
			return err_set(e, EINVAL, "%s stands there twice", v->name);
		if (!read_number(p + name + 1, len - name - 1, v->least, v->most, &x) ||
		    x % v->multiple)
			return bad_value(v, p + name + 1, len - name - 1, e);
		set(&cut, v, x);
		p += len;
		if (!*p)
			break;
	}
	*ret = cut;
	return 0;
}

/* ---- reading ---- */

/* Copies a field, which is a name or "*". Returns false if the field is empty or too long. */
static bool take_name(const char *field, char *ret, size_t size)
{
	if (!*field || strlen(field) >= size)
		return false;
	snprintf(ret, size, "%s", field);
	return true;
}

static bool take_units(const char *field, uint32_t *ret)
{
	*ret = 0;
	return !strcmp(field, "*") || read_number(field, strlen(field), 1, UNITS_MAX, ret);
}

/* Reads a bucket of M (m) or of N and K; "*" becomes 0. Returns false if the field is no bucket. */
static bool take_bucket(const char *field, bool m, uint32_t *ret)
{
	uint32_t x = 0;

	*ret = 0;
	if (!strcmp(field, "*"))
		return true;
	if (!read_number(field, strlen(field), 1, SIZE_BUCKET_MOST, &x))
		return false;
	*ret = x;
	return x == (m ? tuning_m_buckets[tuning_m_bucket(x)] : tuning_size_bucket(x));
}

/* Reads microseconds: digits and a point, at most 20 characters (tuning_write_row writes fewer); "-" becomes 0. */
static bool take_us(const char *field, double *ret)
{
	char *end;

	if (!strcmp(field, "-")) {
		*ret = 0;
		return true;
	}
	if (strspn(field, "0123456789.") != strlen(field) || strlen(field) > 20)
		return false;
	*ret = strtod(field, &end);
	return end != field && !*end && *ret <= US_MAX;
}

/* Returns the index of a word in names [n], or n if it is not there. */
static size_t which(const char *field, const char *const *names, size_t n)
{
	size_t i = 0;

	while (i < n && strcmp(field, names[i]) != 0)
		i++;
	return i;
}

/* Reads the fields of a row. Returns NULL if all are right, else a sentence about the first fault. If the cut is wrong,
 * *e has the sentence instead. */
static const char *take_fields(char *const f[FIELDS], struct tuning_row *ret, struct err *e)
{
	static const char *const kernels[] = {"generic", "x86", "nvidia"};
	static const char *const dtypes[] = {"float32", "bfloat16"}, *const bits[] = {"differ",
										      "same"};
	struct tuning_row row = {0};
	size_t family = which(f[5], family_names, TUNING_FAMILIES), i;

	if (!take_name(f[0], row.device.name, sizeof(row.device.name)))
		return "the device is empty or too long";
	if (!take_name(f[1], row.device.driver, sizeof(row.device.driver)))
		return "the driver is empty or too long";
	if (!take_units(f[2], &row.device.units))
		return "the number of compute units is * or from 1 to 1048576";
	i = which(f[3], kernels, ARRAY_SIZE(kernels));
	if (i == ARRAY_SIZE(kernels))
		return "the kernels are generic, x86 or nvidia";
	snprintf(row.device.kernels, sizeof(row.device.kernels), "%s", kernels[i]);
	i = which(f[4], dtypes, ARRAY_SIZE(dtypes));
	if (i == ARRAY_SIZE(dtypes))
		return "the dtype is float32 or bfloat16";
	row.device.bf16 = i;
	if (family == TUNING_NONE || family == TUNING_FAMILIES)
		return "the family is product, experts, attention or decode_step";
	row.place.family = (enum tuning_family)family;
	if (!take_bucket(f[6], false, &row.place.n))
		return "N is * or a power of two up to 268435456";
	if (!take_bucket(f[7], false, &row.place.k))
		return "K is * or a power of two up to 268435456";
	if (!take_bucket(f[8], true, &row.place.m))
		return "M is *, 1, 2, 4, 8, 16, 32, 64, 128, 512 or 2048";
	if (tuning_parse_cut(f[9], row.place.family, &row.cut, e) < 0)
		return "the cut";
	i = which(f[10], bits, ARRAY_SIZE(bits));
	if (i == ARRAY_SIZE(bits))
		return "bits is 'same' or 'differ'";
	row.same_bits = i;
	if (row.same_bits && row.cut.chains > 1 && !strcmp(row.device.kernels, "x86") &&
	    row.device.bf16)
		return "chains=2 changes bits: the field must be 'differ'";
	if (!take_us(f[11], &row.us) || !take_us(f[12], &row.default_us))
		return "a time is - or a number of microseconds, at most 1000000000000";
	*ret = row;
	return NULL;
}

/* Divides a line into its fields in place, and reads them into *ret. */
static int parse_line(const char *name, uint32_t number, char *line, struct tuning_row *ret,
		      struct err *e)
{
	char *fields[FIELDS];
	struct err inner = {0};
	const char *wrong;
	size_t n = 0;

	for (char *p = line; p; n++) {
		char *tab = strchr(p, '\t');

		if (tab)
			*tab++ = 0;
		if (n < FIELDS)
			fields[n] = p;
		p = tab;
	}
	if (n != FIELDS)
		return err_set(e, EINVAL, "%s: line %u has %zu fields, not %d", name, number, n,
			       FIELDS);
	wrong = take_fields(fields, ret, &inner);
	if (wrong && inner.code)
		return err_set(e, EINVAL, "%s: line %u: %s", name, number, inner.text);
	if (wrong)
		return err_set(e, EINVAL, "%s: line %u: %s", name, number, wrong);
	ret->line = number;
	return 0;
}

static int add_row(const char *name, struct tuning_table *t, const struct tuning_row *row,
		   size_t *cap, struct err *e)
{
	if (t->n == ROWS_MAX)
		return err_set(e, EINVAL, "%s: more than %d rows", name, ROWS_MAX);
	if (!array_grow(t->rows, *cap, t->n + 1))
		return err_no_memory(e);
	t->rows[t->n++] = *row;
	return 0;
}

/* Orders rows by all fields but the cut and the times. Returns -1, 0 or 1. */
static int compare(const struct tuning_row *x, const struct tuning_row *y)
{
	const int64_t differences[] = {
		strcmp(x->device.name, y->device.name),
		strcmp(x->device.driver, y->device.driver),
		(int64_t)x->device.units - y->device.units,
		strcmp(x->device.kernels, y->device.kernels),
		(int64_t)x->device.bf16 - y->device.bf16,
		(int64_t)x->place.family - (int64_t)y->place.family,
		(int64_t)x->place.n - y->place.n,
		(int64_t)x->place.k - y->place.k,
		(int64_t)x->place.m - y->place.m,
		(int64_t)x->same_bits - y->same_bits,
	};

	for (size_t i = 0; i < ARRAY_SIZE(differences); i++)
		if (differences[i])
			return differences[i] < 0 ? -1 : 1;
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct tuning_row *x = a, *y = b;
	int order = compare(x, y);

	return order ? order : x->line < y->line ? -1 : 1;
}

/* Reads all rows into t and sorts them. Divides `text`, which ends with a 0, into lines in place. */
static int parse_lines(const char *name, char *text, struct tuning_table *t, struct err *e)
{
	struct tuning_row row;
	uint32_t number = 0;
	size_t cap = 0;
	int r = 0;

	for (char *line = text, *end; r == 0 && *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		else
			end = line + strlen(line);
		if (!number++) {
			if (strcmp(line, FIRST_LINE) != 0)
				return err_set(e, EINVAL, "%s does not begin with \"%s\"", name,
					       FIRST_LINE);
			continue;
		}
		if (!*line || *line == '#')
			continue;
		r = parse_line(name, number, line, &row, e);
		if (r == 0)
			r = add_row(name, t, &row, &cap, e);
	}
	if (r == 0 && !number)
		r = err_set(e, EINVAL, "%s does not begin with \"%s\"", name, FIRST_LINE);
	if (t->n)
		qsort(t->rows, t->n, sizeof(*t->rows), by_key);
	for (size_t i = 1; r == 0 && i < t->n; i++)
		if (!compare(&t->rows[i - 1], &t->rows[i]))
			r = err_set(
				e, EINVAL,
				"%s: lines %u and %u are for the same device, family, sizes and bits",
				name, t->rows[i - 1].line, t->rows[i].line);
	return r;
}

int tuning_parse(const char *name, const char *text, size_t len, struct tuning_table **ret,
		 struct err *e)
{
	struct tuning_table *t = calloc(1, sizeof(*t));
	char *copy = malloc(len + 1);
	int r;

	if (!t || !copy) {
		r = err_no_memory(e);
	} else if (memchr(text, 0, len)) {
		r = err_set(e, EINVAL, "%s is not a text", name);
	} else {
		memcpy(copy, text, len);
		copy[len] = 0;
		r = parse_lines(name, copy, t, e);
	}
	free(copy);
	if (r < 0) {
		tuning_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

int tuning_open(const char *path, struct tuning_table **ret, struct err *e)
{
	struct buf text;
	int r;

	buf_init(&text, TEXT_MAX);
	r = file_read(AT_FDCWD, path, path, &text, e);
	if (r == 0)
		r = tuning_parse(path, buf_str(&text), text.len, ret, e);
	buf_release(&text);
	return r;
}

void tuning_free(struct tuning_table *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t);
}

/* ---- looking up ---- */

static bool fits(const struct tuning_row *r, const struct tuning_device *d)
{
	return (!strcmp(r->device.name, "*") || !strcmp(r->device.name, d->name)) &&
	       (!strcmp(r->device.driver, "*") || !strcmp(r->device.driver, d->driver)) &&
	       (!r->device.units || r->device.units == d->units) &&
	       !strcmp(r->device.kernels, d->kernels) && r->device.bf16 == d->bf16;
}

bool tuning_knows(const struct tuning_table *t, const struct tuning_device *d)
{
	for (size_t i = 0; t && i < t->n; i++)
		if (fits(&t->rows[i], d))
			return true;
	return false;
}

void tuning_use_text(const struct tuning_use *u, const char *file, char *ret, size_t size)
{
	if (u->known)
		snprintf(ret, size, "tuning %s: %u of %u sizes take a row of it", file, u->taken,
			 u->sizes);
	else
		snprintf(ret, size,
			 "tuning %s: no row is for this device, these kernels and this dtype; "
			 "nothing changes",
			 file);
}

/* Returns how well a row fits (a larger number fits better), or -1 if it does not fit. */
static int rank(const struct tuning_row *r, const struct tuning_device *d,
		const struct tuning_place *p)
{
	bool name = strcmp(r->device.name, "*"), driver = strcmp(r->device.driver, "*");

	if (!fits(r, d) || r->place.family != p->family || (r->place.n && r->place.n != p->n) ||
	    (r->place.k && r->place.k != p->k) || (r->place.m && r->place.m != p->m))
		return -1;
	return 4 * (name + driver + !!r->device.units) + !!r->place.n + !!r->place.k + !!r->place.m;
}

const struct tuning_row *tuning_find(const struct tuning_table *t, const struct tuning_device *d,
				     const struct tuning_place *p, bool any_bits)
{
	const struct tuning_row *best = NULL;
	int most = -1;

	for (size_t i = 0; t && i < t->n; i++) {
		const struct tuning_row *r = &t->rows[i];
		int now = r->same_bits || any_bits ? rank(r, d, p) : -1;

		if (now > most || (now >= 0 && now == most && best->same_bits && !r->same_bits)) {
			best = r;
			most = now;
		}
	}
	return best;
}

/* ---- writing ---- */

void tuning_write_head(FILE *out)
{
	fprintf(out, FIRST_LINE
		"\n# device\tdriver\tunits\tkernels\tdtype\tfamily\tN\tK\tM\tcut\tbits\tus\t"
		"default_us\n");
}

static void write_number(FILE *out, uint32_t x)
{
	if (x)
		fprintf(out, "\t%u", x);
	else
		fprintf(out, "\t*");
}

static void write_us(FILE *out, double us)
{
	if (us > 0)
		fprintf(out, "\t%.3f", us);
	else
		fprintf(out, "\t-");
}

void tuning_write_row(FILE *out, const struct tuning_row *row)
{
	char cut[CUT_TEXT_MAX];

	tuning_cut_text(&row->cut, cut, sizeof(cut));
	fprintf(out, "%s\t%s", row->device.name, row->device.driver);
	write_number(out, row->device.units);
	fprintf(out, "\t%s\t%s\t%s", row->device.kernels, row->device.bf16 ? "bfloat16" : "float32",
		family_names[row->place.family]);
	write_number(out, row->place.n);
	write_number(out, row->place.k);
	write_number(out, row->place.m);
	fprintf(out, "\t%s\t%s", cut, row->same_bits ? "same" : "differ");
	write_us(out, row->us);
	write_us(out, row->default_us);
	fprintf(out, "\n");
}
