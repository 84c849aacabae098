/* `tigon tune`: measures one cut after the other, each in a process of its own (child.h), and writes a table.
 * kernels/tuning/tuning.h says what a cut and a place of the table are. At every place that could be measured the table
 * has the fastest of a few chosen cuts that keep the bits, or the default cut if none of them is faster by more than
 * the noise. A second row of a place may have a faster cut that changes bits. The first process finds the noise by
 * measuring the default cut against itself. For every chosen cut a program is compiled when a model is opened, so only
 * the few cuts that save the most are chosen. */
#include "daemon/cli/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "bench_commit.inc"
#include "daemon/cli/tune/child.h"
#include "daemon/cli/tune/measure.h"
#include "daemon/cli/tune/options.h"
#include "base/file.h"
#include "engine/checkpoint/model_config.h"

#define SECOND	   1000000000ull
#define LEAST_TIME 5 /* least seconds for measuring a cut */

/* Two limits in one number, a share of the default cut's time at a place. The noise of a place counts as at least so
 * much. A cut is chosen only if its savings at the places of a program add up to at least so much. */
#define NOISE 0.03

enum {
	OUTPUT_MAX = 16 << 20,
	ARGS_MAX = 256,
	/* The most cuts that are chosen for a program: SAME_MAX cuts that keep the bits, and DIFFER_MAX that change
	 * them. A program can have 7 cuts besides the default one (CUTS_MAX in kernels/tuning/cuts.h). */
	SAME_MAX = 4,
	DIFFER_MAX = 2,
};

/* The cuts that are measured without --cut, in this order, until the budget is used up. Cuts with chains=2 change bits,
 * the others keep them. */
static const char *const own_cuts[] = {
	"blocks=4",
	"blocks=16",
	"blocks=2",
	"tile_rows=4 tile_blocks=4",
	"tile_rows=6 tile_blocks=4",
	"tile_rows=12 tile_blocks=2",
	"queries=16",
	"queries=32",
	"queries=64",
	"queries=4",
	"ahead=2048",
	"ahead=4096",
	"ahead=1024",
	"ahead=6144",
	"row_block=128",
	"row_block=256",
	"row_block=32",
	"tile_rows=12 tile_blocks=2 row_block=96",
	"tile_rows=6 tile_blocks=4 row_block=96",
	"tile_rows=12 tile_blocks=2 row_block=96 blocks=4",
	"tile_rows=6 tile_blocks=4 row_block=96 blocks=16",
	"tile_rows=4 tile_blocks=4 blocks=4",
	"blocks=4 ahead=2048",
	"blocks=4 ahead=4096",
	"blocks=4 row_block=128",
	"blocks=16 row_block=128",
	"tile_rows=4 tile_blocks=2",
	"tile_rows=4 tile_blocks=6",
	"tile_rows=4 tile_blocks=2 blocks=4 chains=2",
	"tile_rows=4 tile_blocks=2 chains=2",
	"blocks=2 chains=2",
};

/* The measurements at one place. Each row has the times of its cut and of the default cut, measured in one process. */
struct place {
	struct tuning_row own;			/* that of the default cut */
	struct tuning_row tried[TUNE_CUTS_MAX]; /* [number of the cut] us 0: not measured here */
	/* same: the row of the chosen cut that keeps the bits; differ: that of the chosen cut that changes them; NULL:
	 * none */
	const struct tuning_row *same, *differ;
	double noise; /* a cut is faster if it saves more than so much of the default cut's time */
};

struct tuning_run {
	const struct tune_options *options;
	char **argv;
	int argc;
	uint64_t start;
	struct place *places; /* owned */
	size_t n_places;
	/* comment lines of the table: remarks of children, and cuts that were dropped or left out */
	struct buf notes;
	uint32_t measured, dropped;
};

static double ratio(const struct tuning_row *row)
{
	return row->us / row->default_us;
}

static uint32_t seconds_used(const struct tuning_run *t)
{
	return (uint32_t)((clock_now_ns() - t->start) / SECOND);
}

/* ---- one cut ---- */

/* Reads the table that a finished child printed. */
static int read_table(const struct buf *out, struct tuning_table **ret, struct err *e)
{
	const char *text = buf_str(out), *end = strstr(text, "\n" MEASURE_END "\n");

	if (!end || strlen(end) != strlen("\n" MEASURE_END "\n"))
		return err_set(e, EPROTO, "its output is not complete");
	return tuning_parse("its output", text, out->len, ret, e);
}

/* Copies a child's remarks ("# small: ...", "# void: ...") to the notes and to standard error, each once. */
static void take_warnings(struct tuning_run *t, const char *out)
{
	for (const char *line = out, *end; *line; line = *end ? end + 1 : end) {
		char text[512];

		end = line + strcspn(line, "\n");
		if (strncmp(line, "# small: ", 9) != 0 && strncmp(line, "# void: ", 8) != 0)
			continue;
		snprintf(text, sizeof(text), "%.*s\n", (int)MIN(end - line, (ptrdiff_t)500), line);
		if (strstr(buf_str(&t->notes), text))
			continue;
		buf_puts(&t->notes, text);
		fprintf(stderr, "tigon tune: %s", text + 2);
	}
}

/* -ENOTSUP: a finished child found no launch that has a cut. */
static int look_for_nothing(const struct buf *out, struct err *e)
{
	const char *line = strstr(buf_str(out), MEASURE_NOTHING);

	return line ? err_set(e, ENOTSUP, "%.*s", (int)strcspn(line + 2, "\n"), line + 2) : 0;
}

static int measure(struct tuning_run *t, const char *cut, uint32_t seconds,
		   struct tuning_table **ret, struct err *e)
{
	char *argv[ARGS_MAX + 8], number[16];
	struct buf out;
	int n = 0, r;

	if (t->argc > ARGS_MAX)
		return err_set(e, E2BIG, "more than %d arguments", ARGS_MAX);
	snprintf(number, sizeof(number), "%u", seconds);
	argv[n++] = (char *)(uintptr_t) "tigon";
	for (int i = 0; i < t->argc; i++)
		argv[n++] = t->argv[i];
	argv[n++] = (char *)(uintptr_t) "--measure";
	argv[n++] = (char *)(uintptr_t)cut;
	argv[n++] = (char *)(uintptr_t) "--seconds";
	argv[n++] = number;
	argv[n] = NULL;
	buf_init(&out, OUTPUT_MAX);
	r = child_run(argv, t->options->limit, &out, e);
	if (r == 0)
		r = look_for_nothing(&out, e);
	if (r == 0)
		r = read_table(&out, ret, e);
	if (r == 0)
		take_warnings(t, buf_str(&out));
	buf_release(&out);
	return r;
}

/* Returns the measurements at a place. NULL: the default cut was not measured there. */
static struct place *find_place(const struct tuning_run *t, const struct tuning_place *p)
{
	for (size_t i = 0; i < t->n_places; i++) {
		const struct tuning_place *q = &t->places[i].own.place;

		if (q->family == p->family && q->n == p->n && q->k == p->k && q->m == p->m)
			return &t->places[i];
	}
	return NULL;
}

/* Notes the rows that were measured with a cut. Returns the number of places at which the cut is faster than the
 * default one by more than the noise. */
static uint32_t take_rows(struct tuning_run *t, uint32_t cut, const struct tuning_table *table)
{
	uint32_t faster = 0;

	for (size_t i = 0; i < table->n; i++) {
		const struct tuning_row *row = &table->rows[i];
		struct place *p = find_place(t, &row->place);

		if (!p || row->us <= 0 || row->default_us <= 0)
			continue;
		p->tried[cut] = *row;
		faster += ratio(row) < 1 - p->noise;
	}
	return faster;
}

static void drop(struct tuning_run *t, const char *cut, const char *why)
{
	t->dropped++;
	buf_printf(&t->notes, "# dropped: %s: %s\n", cut, why);
	fprintf(stderr, "tigon tune: %s: dropped: %s\n", cut, why);
}

static bool other_bits(const struct tuning_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		if (!table->rows[i].same_bits)
			return true;
	return false;
}

static void try_cut(struct tuning_run *t, uint32_t number, const char *cut, uint32_t seconds)
{
	struct tuning_table *table;
	struct err e = {0};

	if (measure(t, cut, seconds, &table, &e) < 0) {
		drop(t, cut, e.text);
		return;
	}
	t->measured++;
	if (other_bits(table) && !t->options->engine.tuning.any_bits)
		drop(t, cut, "other bits");
	else
		fprintf(stderr, "tigon tune: %s: faster at %u of %zu places%s\n", cut,
			take_rows(t, number, table), table->n,
			other_bits(table) ? ", with other bits" : "");
	tuning_free(table);
}

/* ---- all of them ---- */

/* Measures the default cut against itself: finds the places, and the noise of each. */
static int measure_noise(struct tuning_run *t, uint32_t seconds, struct err *e)
{
	struct tuning_table *table;
	int r = measure(t, "-", seconds, &table, e);

	if (r < 0) {
		if (r != -ENOTSUP)
			err_prefix(e, "the default cuts cannot be measured");
		return r;
	}
	t->places = calloc(table->n + 1, sizeof(*t->places));
	if (!t->places)
		r = err_no_memory(e);
	else if (other_bits(table))
		r = err_set(e, EPROTO, "equal kernels gave different bits");
	for (size_t i = 0; r == 0 && i < table->n; i++) {
		struct tuning_row row = table->rows[i];

		if (row.us <= 0 || row.default_us <= 0)
			continue;
		t->places[t->n_places].noise =
			MAX(ratio(&row) > 1 ? ratio(&row) - 1 : 1 - ratio(&row), NOISE);
		row.us = row.default_us;
		t->places[t->n_places++].own = row;
	}
	tuning_free(table);
	if (r == 0 && !t->n_places)
		r = err_set(e, ETIME, "there was not the time to measure anything");
	return r;
}

static int measure_all(struct tuning_run *t, struct err *e)
{
	const struct tune_options *o = t->options;
	const char *const *cuts = o->cuts.n ? o->cuts.v : own_cuts;
	uint32_t n = o->cuts.n ? o->cuts.n : (uint32_t)ARRAY_SIZE(own_cuts), i;
	int r = measure_noise(t, MAX(o->budget / (n + 1), (uint32_t)LEAST_TIME), e);

	if (r < 0)
		return r;
	for (i = 0; i < n && seconds_used(t) < o->budget; i++)
		try_cut(t, i, cuts[i],
			MAX((o->budget - seconds_used(t)) / (n - i), (uint32_t)LEAST_TIME));
	if (i < n)
		fprintf(stderr, "tigon tune: %u cuts are left out: the budget is used up\n", n - i);
	for (; i < n; i++)
		buf_printf(&t->notes, "# no time left for: %s\n", cuts[i]);
	return 0;
}

/* ---- choosing ---- */

/* Returns whether the launches at a place are those of a program. A program has the name of its family; only products
 * and experts have one program together, TUNING_PRODUCT. */
static bool of_program(const struct place *p, enum tuning_family program)
{
	enum tuning_family family = p->own.place.family;

	return (family == TUNING_EXPERTS ? TUNING_PRODUCT : family) == program;
}

/* Returns the time at a place with the cuts that are chosen so far (same_bits: only with those that keep the bits), as
 * a share of the default cut's time. */
static double now(const struct place *p, bool same_bits)
{
	return !same_bits && p->differ ? ratio(p->differ) : p->same ? ratio(p->same) : 1;
}

/* Returns the time that this cut would save at a place, compared with the cuts that are chosen so far, as a share of
 * the default cut's time. Returns 0 unless the cut beats a limit by more than the noise. The limit is the default cut's
 * time; for a cut that changes bits it is the time with the chosen cuts that keep them. */
static double gain(const struct place *p, uint32_t cut, bool same_bits)
{
	const struct tuning_row *row = &p->tried[cut];
	double below = same_bits ? 1 : now(p, true);

	if (row->us <= 0 || row->same_bits != same_bits || ratio(row) >= below * (1 - p->noise))
		return 0;
	return MAX(now(p, same_bits) - ratio(row), 0.0);
}

/* Chooses up to `most` cuts of a program that keep (or, without same_bits, change) the bits. Each time takes the cut
 * whose savings at the places of the program add up to the most. Stops when even this sum is less than NOISE. */
static void take_cuts(struct tuning_run *t, enum tuning_family program, bool same_bits,
		      uint32_t most)
{
	for (uint32_t n = 0; n < most; n++) {
		double largest = 0;
		uint32_t best = 0;

		for (uint32_t c = 0; c < TUNE_CUTS_MAX; c++) {
			double sum = 0;

			for (size_t i = 0; i < t->n_places; i++)
				if (of_program(&t->places[i], program))
					sum += gain(&t->places[i], c, same_bits);
			if (sum > largest) {
				largest = sum;
				best = c;
			}
		}
		if (largest < NOISE)
			return;
		for (size_t i = 0; i < t->n_places; i++) {
			struct place *p = &t->places[i];

			if (!of_program(p, program) || gain(p, best, same_bits) <= 0)
				continue;
			if (same_bits)
				p->same = &p->tried[best];
			else
				p->differ = &p->tried[best];
		}
	}
}

static void take_all(struct tuning_run *t)
{
	static const enum tuning_family programs[] = {TUNING_PRODUCT, TUNING_ATTENTION,
						      TUNING_DECODE_STEP};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		take_cuts(t, programs[i], true, SAME_MAX);
		take_cuts(t, programs[i], false, DIFFER_MAX);
	}
}

/* ---- writing ---- */

static void write_row(const struct tuning_run *t, struct tuning_row row, FILE *out)
{
	if (t->options->family) {
		snprintf(row.device.name, sizeof(row.device.name), "*");
		snprintf(row.device.driver, sizeof(row.device.driver), "*");
	}
	tuning_write_row(out, &row);
}

/* Writes the table as text. */
static void write_table(const struct tuning_run *t, FILE *out)
{
	const struct tuning_row *any = &t->places[0].own;

	tuning_write_head(out);
	fprintf(out,
		"# tigon " TIGON_VERSION ", commit " BENCH_COMMIT
		", model %s, device %s, driver %s\n",
		t->options->engine.model_dir, any->device.name, any->device.driver);
	fprintf(out, "# cuts measured: %u, dropped: %u, %u s\n", t->measured, t->dropped,
		seconds_used(t));
	fputs(buf_str(&t->notes), out);
	for (size_t i = 0; i < t->n_places; i++) {
		const struct place *p = &t->places[i];

		write_row(t, p->same ? *p->same : p->own, out);
		if (p->differ)
			write_row(t, *p->differ, out);
	}
}

static int write_out(const struct tuning_run *t, struct err *e)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = t->options->out ? open_memstream(&text, &len) : stdout;
	int r = 0;

	if (!f)
		return err_no_memory(e);
	write_table(t, f);
	if (t->options->out) {
		r = fclose(f) ? err_no_memory(e) : file_write(t->options->out, text, len, e);
		free(text);
	} else if (fflush(f)) {
		r = err_set(e, errno, "standard output: %s", strerror(errno));
	}
	return r;
}

/* Checks that the table can be written. Leaves the path as it is, so that an interrupted run leaves no empty table. */
static int check_out(const char *path, struct err *e)
{
	struct file_draft draft;
	int r = file_draft_open(&draft, path, e);

	if (r == 0)
		(void)!file_draft_close(&draft, -ECANCELED, e);
	return r;
}

/* Runs in the parent process, which must not use OpenCL (child.h). */
static int choose(const struct tune_options *o, int argc, char **argv, struct err *e)
{
	struct tuning_run t = {.options = o, .argc = argc, .argv = argv, .start = clock_now_ns()};
	struct model_config config;
	int r = model_config_open(o->engine.model_dir, &config, e);

	/* A run may take an hour, so a path that cannot be written is refused before anything is measured. */
	if (r == 0 && o->out && (r = check_out(o->out, e)) < 0)
		err_prefix(e, "--out");
	if (r < 0)
		return r;
	buf_init(&t.notes, OUTPUT_MAX);
	r = measure_all(&t, e);
	if (r == 0) {
		take_all(&t);
		r = write_out(&t, e);
	} else if (r == -ENOTSUP) {
		/* Nothing to tune is an answer, and no failure. */
		fprintf(stderr, "tigon tune: %s, so there is no table to write\n", e->text);
		r = 0;
	}
	buf_release(&t.notes);
	free(t.places);
	return r;
}

int cli_tune(int argc, char **argv, struct err *e)
{
	struct tune_options o;
	int r = tune_options_parse(argc, argv, &o, e);

	if (r == 0)
		r = o.measure ? tune_measure(&o, e) : choose(&o, argc, argv, e);
	return r;
}
