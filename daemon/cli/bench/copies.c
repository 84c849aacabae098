/* `tigon bench copies`: how fast pages and states are copied between host and device, and how much slower streams
 * generate tokens beside such copies. The copies are those of the cache below the device and of shipped prompts: of
 * whole pages or states that no stream uses, so that a step need not wait for them.
 *
 * Each kind of copy is measured alone and then beside each kind of step. Copies are queued behind each step that was
 * queued, until --in-flight bytes of them are under way. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/cli/bench/setup.h"
#include "daemon/cli/command.h"
#include "daemon/cli/samples.h"

/* How long copies are measured alone. */
#define ALONE_NS UINT64_C(200000000)

struct copies {
	struct engine *engine;
	enum tier_kind kind;
	bool write;	       /* from host to device */
	uint32_t first, n_ids; /* the pages or slots that are copied in turn */
	char *host;	       /* [places][item_bytes] */
	uint64_t item_bytes;
	uint32_t places;      /* the most copies that are under way */
	uint64_t next, bytes; /* items that were queued; bytes of those that are back */
};

/* A row of the table. */
struct row {
	bool copies, write, pinned; /* the latter two matter with copies alone */
	enum tier_kind kind;
	uint32_t streams, tokens;    /* streams 0: no steps run */
	double ms, tokens_s, copied; /* of a step; a second; bytes a second */
};

/* ---- copies ---- */

/* Takes back the copies that have run. */
static int take_back(struct copies *c, struct err *e)
{
	void *tags[64];
	uint32_t n;
	int r;

	do {
		r = engine_items_done(c->engine, tags, ARRAY_SIZE(tags), &n, e);
		c->bytes += n * c->item_bytes;
	} while (r == 0 && n);
	return r;
}

/* Takes back the copies that have run, and queues as many new ones. */
static int go_on(void *user, struct err *e)
{
	struct copies *c = user;
	int r = take_back(c, e);

	while (r == 0 && engine_items_out(c->engine) < c->places) {
		uint32_t id = c->first + (uint32_t)(c->next % c->n_ids);
		char *host = c->host + c->next++ % c->places * c->item_bytes;

		r = c->write ? engine_write_item(c->engine, c->kind, id, host, NULL, e)
			     : engine_read_item(c->engine, c->kind, id, host, NULL, e);
	}
	return r;
}

static int wait_all(struct copies *c, struct err *e)
{
	int r = 0;

	while (r == 0 && engine_items_out(c->engine)) {
		r = take_back(c, e);
		sched_yield();
	}
	return r;
}

/* ---- measurements ---- */

static int run_alone(struct copies *c, double *ret_bytes_s, struct err *e)
{
	uint64_t start = clock_now_ns(), now = start;
	int r = 0;

	c->bytes = 0;
	for (; r == 0 && now < start + ALONE_NS; now = clock_now_ns())
		r = go_on(c, e);
	if (r == 0)
		r = wait_all(c, e);
	*ret_bytes_s = (double)c->bytes / ((double)(clock_now_ns() - start) / 1e9);
	return r;
}

/* Runs steps, beside the copies if there are any (else c is NULL). */
static int run_steps(const struct bench *b, const struct row *row, struct copies *c,
		     double *ret_step_s, double *ret_bytes_s, struct err *e)
{
	struct load_result result;
	int r, waited;

	if (c)
		c->bytes = 0;
	load_beside(b->load, c ? go_on : NULL, c);
	r = load_decode(b->load, row->streams, row->tokens, b->options->steps, 0, &result, e);
	load_beside(b->load, NULL, NULL);
	*ret_step_s = result.seconds / b->options->steps;
	if (!c)
		return r;
	*ret_bytes_s = (double)c->bytes / result.seconds;
	waited = wait_all(c, r == 0 ? e : NULL);
	return r < 0 ? r : waited;
}

static int measure(const struct bench *b, struct row *row, struct copies *c, struct err *e)
{
	uint32_t n = b->options->repeat;
	double *step_s = calloc(2 * (size_t)n, sizeof(*step_s)), *bytes_s = step_s + n;
	int r = 0;

	if (!step_s)
		return err_no_memory(e);
	/* The first one is not counted: drivers make much at the first use. */
	for (uint32_t i = 0; r == 0 && i <= n; i++) {
		uint32_t at = i ? i - 1 : 0;

		r = row->streams ? run_steps(b, row, c, &step_s[at], &bytes_s[at], e)
				 : run_alone(c, &bytes_s[at], e);
	}
	if (r == 0) {
		row->ms = median(step_s, n) * 1e3;
		row->copied = median(bytes_s, n);
		row->tokens_s = row->streams ? row->streams / row->ms * 1e3 : 0;
	}
	free(step_s);
	return r;
}

/* Fills *c but for its host memory. False: there is nothing that could be copied, and a line says why. */
static bool choose_copies(const struct bench *b, const struct row *row, struct copies *c)
{
	const struct engine_info *info = engine_info(b->engine);
	bool page = row->kind == TIER_PAGE;
	uint32_t used = page ? load_pages(b->load) : b->options->engine.max_seqs;
	uint32_t n = page ? info->n_pages : info->n_slots;

	*c = (struct copies){
		.engine = b->engine,
		.kind = row->kind,
		.write = row->write,
		.first = used,
		.n_ids = n > used ? n - used : 0,
		.item_bytes = page ? info->page_bytes : info->slot_bytes,
	};
	if (!c->item_bytes || !c->n_ids) {
		printf("# %s left out: %s\n", page ? "pages" : "states",
		       c->item_bytes ? "the streams use all of them; --cache-memory allows more"
				     : "the model has none");
		return false;
	}
	c->places = (uint32_t)MIN(MAX(b->options->in_flight / c->item_bytes, UINT64_C(2)),
				  (uint64_t)ENGINE_ITEMS_OUT);
	return true;
}

/* Measures one kind of copy alone and beside all cases, and adds the rows. */
static int measure_copies(const struct bench *b, const struct row *kind,
			  const struct bench_case *cases, size_t n_cases, struct row *rows,
			  size_t *n_rows, struct err *e)
{
	struct engine_block *block = NULL;
	struct copies c;
	void *plain = NULL;
	int r = 0;

	if (!choose_copies(b, kind, &c))
		return 0;
	if (kind->pinned)
		r = engine_block_new(b->engine, c.places * c.item_bytes, &block, e);
	else if (!(plain = calloc(c.places, c.item_bytes)))
		r = err_no_memory(e);
	c.host = block ? engine_block_data(block) : plain;
	for (size_t i = 0; r == 0 && i <= n_cases; i++) {
		struct row *row = &rows[(*n_rows)++];

		*row = *kind;
		if (i) {
			row->streams = cases[i - 1].streams;
			row->tokens = cases[i - 1].tokens;
		}
		r = measure(b, row, &c, e);
	}
	free(plain);
	engine_block_free(block);
	return r;
}

/* ---- all ---- */

static void print_row(const struct row *r)
{
	printf("%s\t%s\t", r->copies ? r->write ? "write" : "read" : "none",
	       !r->copies	      ? "-"
	       : r->kind == TIER_PAGE ? "page"
				      : "state");
	printf("%s\t%u\t%u\t", r->copies ? r->pinned ? "pinned" : "plain" : "-", r->streams,
	       r->tokens);
	if (r->streams)
		printf("%.3f\t%.1f\t", r->ms, r->tokens_s);
	else
		printf("-\t-\t");
	if (r->copies)
		printf("%.2f\n", r->copied / 1e9);
	else
		printf("-\n");
}

static int run_copies(struct bench *b, struct err *e)
{
	struct bench_case *cases = NULL;
	struct row *rows = NULL;
	size_t n_cases = 0, n = 0;
	int r = bench_cases(b, &cases, &n_cases, e);

	/* steps alone, and eight kinds of copies */
	if (r == 0 && !(rows = calloc(n_cases + 8 * (n_cases + 1), sizeof(*rows))))
		r = err_no_memory(e);
	for (size_t i = 0; r == 0 && i < n_cases; i++) {
		rows[n] = (struct row){.streams = cases[i].streams, .tokens = cases[i].tokens};
		r = measure(b, &rows[n++], NULL, e);
	}
	for (unsigned i = 0; r == 0 && i < 8; i++) {
		const struct row kind = {.copies = true,
					 .kind = i & 4 ? TIER_STATE : TIER_PAGE,
					 .write = i & 2,
					 .pinned = !(i & 1)};

		r = measure_copies(b, &kind, cases, n_cases, rows, &n, e);
	}
	if (r == 0)
		r = bench_measure_peaks(b, e);
	if (r == 0) {
		(void)bench_print_head(b);
		printf("# copies on %s, at most %.1f MB under way\n",
		       engine_info(b->engine)->copies_apart ? "a queue of their own"
							    : "the queue of the steps",
		       (double)b->options->in_flight / 1e6);
		printf("copies\titem\tmemory\tstreams\ttokens\tms\ttokens/s\tGB/s\n");
		for (size_t i = 0; i < n; i++)
			print_row(&rows[i]);
	}
	free(rows);
	free(cases);
	return r;
}

int bench_copies(int argc, char **argv, struct err *e)
{
	static const struct bench_defaults own = {.prefill = "0",
						  .decode = "1,8",
						  .context = "1024",
						  .repeat = 5};

	return bench_run(argc, argv, &own, run_copies, e);
}
