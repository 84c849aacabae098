/* kernels/tuning/tuning.c and cuts.c: tables are read, looked up and written; wrong lines are refused. */
#include "kernels/tuning/tuning.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/macros.h"
#include "kernels/kernels.h"
#include "kernels/tuning/cuts.h"
#include "tests/scratch.h"
#include "tests/tap.h"

#define HEAD			      "tigon tuning 1\n"
#define ROW(device, place, cut, rest) device "\tx86\tbfloat16\t" place "\t" cut "\t" rest "\n"
#define CUT_NAMES                                                                                 \
	": - or name=N, with the names tile_rows, tile_blocks, blocks, row_block, ahead, chains " \
	"and queries"
#define ANY "*\t*\t*"

static const struct tuning_device cpu = {
	.name = "a cpu", .driver = "1.0", .units = 2, .kernels = "x86", .bf16 = true};

/* Returns the table of a text. NULL: the text is refused; *e has the reason. */
static struct tuning_table *parse(const char *text, struct err *e)
{
	struct tuning_table *t = NULL;
	int r = tuning_parse("table", text, strlen(text), &t, e);

	check((r == 0) == (t != NULL));
	return t;
}

static void refused(const char *text, const char *why)
{
	struct err e = {0};
	struct tuning_table *t = parse(text, &e);

	ok(!t && e.code == EINVAL && !strcmp(e.text, why), "%s", why);
	if (t || strcmp(e.text, why) != 0)
		printf("# %s\n", e.text);
	tuning_free(t);
}

TEST(buckets)
{
	static const uint32_t m[][2] = {{0, 1},	     {1, 1},	   {2, 2},	 {3, 4},
					{9, 16},     {64, 64},	   {65, 128},	 {129, 512},
					{513, 2048}, {2049, 2048}, {99999, 2048}};
	static const uint32_t size[][2] = {{0, 1},	 {5, 8},       {16, 16},	{17, 32},
					   {1024, 1024}, {1025, 2048}, {248320, 262144}};

	for (size_t i = 0; i < ARRAY_SIZE(m); i++)
		check(tuning_m_buckets[tuning_m_bucket(m[i][0])] == m[i][1]);
	for (size_t i = 0; i < ARRAY_SIZE(size); i++)
		check(tuning_size_bucket(size[i][0]) == size[i][1]);
	check(tuning_size_bucket(UINT64_MAX) == 1u << 28);
	check(tuning_m_bucket(UINT64_MAX) == TUNING_M_BUCKETS - 1);
	ok_all("the smallest bucket that is not below the size");
}

TEST(reading)
{
	struct err e = {0};
	struct tuning_table *t =
		parse(HEAD
		      "\n# a comment\twith a tab\n" ROW("a cpu\t1.0\t2", "product\t4096\t1024\t512",
							"tile_rows=6 blocks=4", "same\t12.5\t13")
			      ROW(ANY, "attention\t*\t*\t*", "-", "same\t-\t-"),
		      &e);
	const struct tuning_row *row;

	if (!ok(t && t->n == 2, "two rows, %s", e.text))
		return;
	row = tuning_find(t, &cpu, &(struct tuning_place){TUNING_PRODUCT, 4096, 1024, 512}, false);
	ok(row && row->cut.tile_rows == 6 && row->cut.blocks == 4 && !row->cut.tile_blocks &&
		   row->us == 12.5 && row->default_us == 13 && row->same_bits && row->line == 4,
	   "the first one as it stands there");
	tuning_free(t);
	t = parse(HEAD "# no end of a line", &e);
	ok(t && !t->n, "an empty table is one");
	tuning_free(t);
	t = parse("tigon tuning 1", &e);
	ok(t && !t->n, "also without an end of the line");
	tuning_free(t);
	is_int(kernels_built_in_table(&t, &e), 0, "the one that is built in is good: %s", e.text);
	tuning_free(t);
}

/* Each makes a line in which all other fields are good. */
#define DEVICE(device) ROW(device, "product\t*\t*\t*", "-", "same\t-\t-")
#define PLACE(place)   ROW(ANY, place, "-", "same\t-\t-")
#define CUT(cut)       ROW(ANY, "product\t*\t*\t*", cut, "same\t-\t-")
#define TIMES(rest)    ROW(ANY, "product\t*\t*\t*", "-", rest)

static const char units[] = "the number of compute units is * or from 1 to 1048576";
static const char sizes[] = "M is *, 1, 2, 4, 8, 16, 32, 64, 128, 512 or 2048";
static const char times[] = "a time is - or a number of microseconds, at most 1000000000000";

/* clang-format off: a case begins a line. */
static const struct {
	const char *line, *why;
} lines[] = {
	{DEVICE("\t*\t*"), "the device is empty or too long"},
	{DEVICE("*\t*\t0"), units},
	{DEVICE("*\t*\t-1"), units},
	{ANY "\tarm\tbfloat16\tproduct\t*\t*\t*\t-\tsame\t-\t-\n",
	 "the kernels are generic, x86 or nvidia"},
	{ANY "\tx86\tint4\tproduct\t*\t*\t*\t-\tsame\t-\t-\n", "the dtype is float32 or bfloat16"},
	{PLACE("none\t*\t*\t*"), "the family is product, experts, attention or decode_step"},
	{PLACE("product\t1000\t*\t*"), "N is * or a power of two up to 268435456"},
	{PLACE("product\t*\t99999999999999999999\t*"), "K is * or a power of two up to 268435456"},
	{PLACE("product\t*\t*\t256"), sizes},
	{PLACE("product\t*\t*\t4096"), sizes},
	{CUT("tile_rows=0"), "tile_rows is 1 to 16, not \"0\""},
	{CUT("blocks=3"), "blocks is 2 to 32, a multiple of 2, not \"3\""},
	{CUT("ahead=4294967360"), "ahead is 64 to 65536, a multiple of 64, not \"4294967360\""},
	{CUT("blocks=4 -DX=1"), "\"-DX=1\" is no value of a cut" CUT_NAMES},
	{CUT("blocks=4  ahead=64"), "\"\" is no value of a cut" CUT_NAMES},
	{CUT(""), "\"\" is no value of a cut" CUT_NAMES},
	{CUT("blocks=4 blocks=4"), "blocks stands there twice"},
	{CUT("queries=8"), "product has no queries"},
	{CUT("chains=2"), "chains=2 changes bits: the field must be 'differ'"},
	{TIMES("maybe\t-\t-"), "bits is 'same' or 'differ'"},
	{TIMES("same\t1e5\t-"), times},
	{TIMES("same\t-\tnan"), times},
	{TIMES("same\t1\t33333333333340517"), times},
	{TIMES("same\t.\t-"), times},
};
/* clang-format on */

TEST(refusing)
{
	static char long_name[600];
	char text[256], why[256];
	struct tuning_table *t = NULL;
	struct err e = {0};

	refused("", "table does not begin with \"tigon tuning 1\"");
	refused("tigon tuning 2\n", "table does not begin with \"tigon tuning 1\"");
	refused("\n" HEAD, "table does not begin with \"tigon tuning 1\"");
	refused(HEAD "a\tb\n", "table: line 2 has 2 fields, not 13");
	refused(HEAD ROW(ANY, "product\t*\t*\t*", "-", "same\t-\t-\t"),
		"table: line 2 has 14 fields, not 13");
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		snprintf(text, sizeof(text), HEAD "%s", lines[i].line);
		snprintf(why, sizeof(why), "table: line 2: %s", lines[i].why);
		refused(text, why);
	}
	refused(HEAD ROW(ANY, "product\t*\t*\t*", "blocks=4",
			 "same\t-\t-") "#\n" ROW(ANY, "product\t*\t*\t*", "blocks=8", "same\t1\t1"),
		"table: lines 2 and 4 are for the same device, family, sizes and bits");
	memset(long_name, 'x', sizeof(long_name) - 1);
	snprintf(long_name, 20, HEAD);
	long_name[15] = 'x';
	ok(!parse(long_name, &e), "a line that is too long and has no fields: %.40s", e.text);
	is_int(tuning_parse("table", HEAD "\0x", sizeof(HEAD "\0x") - 1, &t, &e), -EINVAL, "%s",
	       e.text);
	is_int(tuning_open("/proc/nowhere/table", &t, &e), -ENOENT, "%s", e.text);
	is_int(tuning_open("/", &t, &e), -EINVAL, "%s", e.text);
	check(mkfifo(scratch_path("fifo"), 0600) == 0);
	is_int(tuning_open(scratch_path("fifo"), &t, &e), -EINVAL, "%s", e.text);
	ok(!t, "nothing was written to the result");
}

/* A good table in which one byte is wrong, any byte in some ways, is read or refused. Values that are read are in
 * range. */
TEST(damage)
{
	static const char good[] = HEAD ROW("a cpu\t1.0\t2", "product\t4096\t1024\t512",
					    "tile_rows=6 blocks=4", "same\t12.5\t13")
		ROW(ANY, "decode_step\t*\t*\t8", "chains=2 ahead=4096", "differ\t1\t2");
	static const char bytes[] = "\0\t\n *=-9a\xff";
	char text[sizeof(good)];
	unsigned read = 0, tried = 0;

	for (size_t i = 0; i + 1 < sizeof(good); i++)
		for (size_t b = 0; b + 1 < sizeof(bytes); b++) {
			struct tuning_table *t = NULL;
			struct err e = {0};

			memcpy(text, good, sizeof(good));
			text[i] = bytes[b];
			tried++;
			if (tuning_parse("table", text, sizeof(good) - 1, &t, &e) < 0) {
				check(e.code == EINVAL && e.text[0]);
				continue;
			}
			read++;
			for (size_t k = 0; k < t->n; k++) {
				const struct tuning_cut *c = &t->rows[k].cut;

				check(c->tile_rows <= 16 && c->blocks % 2 == 0 && c->blocks <= 32 &&
				      c->ahead % 64 == 0 && c->ahead <= 65536 && c->chains <= 2);
			}
			tuning_free(t);
		}
	check(read && read < tried);
	ok_all("%u damaged tables: %u are read, %u refused", tried, read, tried - read);
}

static void finds(const struct tuning_table *t, struct tuning_device d, struct tuning_place p,
		  bool any_bits, uint32_t blocks, const char *what)
{
	const struct tuning_row *row = tuning_find(t, &d, &p, any_bits);

	is_int(row ? row->cut.blocks : 0, blocks, "%s", what);
}

TEST(finding)
{
	struct err e = {0};
	/* clang-format off: the rows of a table. */
	struct tuning_table *t =
		parse(HEAD ROW("a cpu\t1.0\t2", "product\t1024\t1024\t8", "blocks=2", "same\t1\t2")
			      ROW("*\t*\t2", "product\t1024\t1024\t8", "blocks=4",
				  "same\t1\t2") ROW("*\t*\t2", "product\t1024\t1024\t1", "blocks=6",
						    "same\t1\t2") ROW(ANY, "product\t*\t*\t*",
								      "blocks=8", "same\t1\t2")
				      ROW(ANY, "product\t*\t*\t*", "blocks=10", "differ\t1\t2")
					      ROW(ANY, "product\t*\t*\t512", "blocks=12",
						  "same\t1\t2"),
		      &e);
	/* clang-format on */
	struct tuning_place p = {TUNING_PRODUCT, 1024, 1024, 8};
	struct tuning_device d = cpu;

	if (!ok(t != NULL, "a table for many %s", e.text))
		return;
	finds(t, d, p, false, 2, "the device's own row");
	snprintf(d.driver, sizeof(d.driver), "2.0");
	finds(t, d, p, false, 4, "with another driver that of its family");
	d.units = 64;
	finds(t, d, p, false, 8, "with other compute units that of everybody");
	finds(t, d, p, true, 10, "and where bits may change the one that changes them");
	d = cpu;
	finds(t, d, p, true, 2, "but not before a row that is more about this device");
	p.m = 1;
	finds(t, d, p, false, 6, "of the family, for another M");
	p.m = 512;
	finds(t, d, p, false, 12, "one star less counts");
	p.family = TUNING_EXPERTS;
	finds(t, d, p, true, 0, "no row, no cut");
	p.family = TUNING_PRODUCT;
	d.bf16 = false;
	finds(t, d, p, true, 0, "nor for another element type");
	snprintf(d.kernels, sizeof(d.kernels), "generic");
	d.bf16 = true;
	finds(t, d, p, true, 0, "nor for other kernels");
	tuning_free(t);
	ok(!tuning_find(NULL, &cpu, &p, true), "nor without a table");
}

TEST(writing)
{
	struct tuning_row row = {.device = cpu,
				 .place = {TUNING_EXPERTS, 256, 0, 4},
				 .cut = {.tile_rows = 6, .row_block = 96, .chains = 2},
				 .us = 3.25};
	struct tuning_table *t;
	struct err e = {0};
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	tuning_write_head(f);
	tuning_write_row(f, &row);
	memset(&row.cut, 0, sizeof(row.cut));
	row.same_bits = true;
	tuning_write_row(f, &row);
	fclose(f);
	t = parse(text, &e);
	ok(t && t->n == 2 && t->rows[0].cut.row_block == 96 && t->rows[0].cut.chains == 2 &&
		   !t->rows[0].same_bits && t->rows[1].same_bits && !t->rows[1].cut.chains &&
		   t->rows[0].place.k == 0 && t->rows[0].place.m == 4 &&
		   !strcmp(t->rows[1].device.name, "a cpu"),
	   "what is written is read again: %s", e.text);
	tuning_free(t);
	free(text);
}

/* ---- cuts ---- */

static const struct kernel_shape shape = {
	.hidden = 1000,
	.vocab = 30000,
	.heads = 8,
	.kv_heads = 2,
	.head_dim = 128,
	.attention_gate = true,
	.n_mlps = 1,
	.mlps = {{.experts = 64, .topk = 8, .expert_size = 256, .shared_size = 256}}};

/* clang-format off: a program begins a line. */
static const struct tuning_cut built_in[CUT_PROGRAMS] = {
	[CUT_GEMM] = {.tile_rows = 8,
		      .tile_blocks = 2,
		      .blocks = 8,
		      .row_block = 64,
		      .ahead = 64,
		      .chains = 1},
	[CUT_ATTENTION] = {.queries = 8},
	[CUT_DECODE_STEP] = {.tile_rows = 8,
			     .tile_blocks = 2,
			     .blocks = 4,
			     .row_block = 64,
			     .ahead = 64,
			     .chains = 1},
};
/* clang-format on */

static struct cuts choose(const char *text, bool any_bits)
{
	struct err e = {0};
	struct tuning_table *t = parse(text, &e);
	struct cuts c;

	if (!t)
		printf("# %s\n", e.text);
	cuts_choose(&c, &shape, built_in,
		    &(struct cuts_source){.device = &cpu,
					  .tables = {NULL, t},
					  .any_bits = any_bits,
					  .products = true,
					  .attention = true,
					  .decode_step = true});
	tuning_free(t);
	return c;
}

#define SAME(m, blocks) ROW(ANY, "product\t*\t*\t" m, "blocks=" blocks, "same\t-\t-")

TEST(cuts)
{
	/* clang-format off: the rows of a table. */
	struct cuts c = choose(HEAD ROW(ANY, "product\t1024\t1024\t*", "blocks=4", "same\t1\t2")
				       ROW(ANY, "experts\t256\t1024\t8", "blocks=4", "same\t1\t2")
					       ROW(ANY, "product\t32768\t1024\t1", "chains=2",
						   "differ\t1\t2") ROW(ANY, "decode_step\t*\t*\t*",
								       "blocks=4", "same\t1\t2")
						       ROW(ANY, "attention\t4\t128\t512",
							   "queries=32", "same\t1\t2"),
			       false);
	/* clang-format on */
	struct tuning_place p = tuning_place_of(TUNING_PRODUCT, 1000, 1024, 3);
	char a[33], b[33];

	ok(c.same_bits && c.n[CUT_GEMM] == 2 && c.n[CUT_ATTENTION] == 2 &&
		   c.n[CUT_DECODE_STEP] == 1,
	   "a program for each cut in use, and none for what is as the default");
	is_int(c.of[CUT_GEMM][1].blocks, 4, "a cut takes what it does not name");
	is_int(c.of[CUT_GEMM][1].tile_rows, 8, "from the one that is built in");
	is_int(cuts_find(&c, &p), 1, "the product's row");
	p = cuts_experts(&shape, 0, false, 64);
	ok(p.m == 8 && cuts_find(&c, &p) == 1, "64 tokens are 8 rows of each expert");
	p = cuts_experts(&shape, 0, true, 64);
	is_int(cuts_find(&c, &p), 0, "the other way round there is no row");
	p = cuts_attention(&shape, 300);
	ok(cuts_find(&c, &p) == 1 && cuts_tile_tokens(&shape, &c.of[CUT_ATTENTION][1]) == 8 &&
		   cuts_tile_tokens(&shape, &c.of[CUT_ATTENTION][0]) == 2,
	   "queries are those of the heads that share a key");
	p = tuning_place_of(TUNING_PRODUCT, 30000, 1000, 1);
	is_int(cuts_find(&c, &p), 0, "what changes bits is not taken");
	c.defaults = true;
	p = tuning_place_of(TUNING_PRODUCT, 1000, 1024, 3);
	is_int(cuts_find(&c, &p), 0, "nor is anything, where that is asked for");
	p = tuning_place_of(TUNING_PRODUCT, 30000, 1000, 1);
	c = choose(HEAD ROW(ANY, "product\t32768\t1024\t1", "chains=2", "differ\t1\t2"), true);
	ok(!c.same_bits && cuts_find(&c, &p) == 1, "unless it may be");
	cuts_identity(&c, a);
	c = choose(HEAD ROW(ANY, "product\t32768\t1024\t2", "chains=2", "differ\t1\t2"), true);
	cuts_identity(&c, b);
	ok(strcmp(a, b) != 0, "which launches take it is part of what decides bits");
	c = choose(HEAD SAME("1", "2") SAME("2", "4") SAME("4", "6") SAME("8", "10")
			   SAME("16", "12") SAME("32", "14") SAME("64", "16") SAME("128", "18"),
		   false);
	p.m = 128;
	ok(c.n[CUT_GEMM] == CUTS_MAX && cuts_find(&c, &p) == 0,
	   "of more cuts than there is room for the last take the default");
}

/* On tensor cores nothing has cuts: products, attention, and a decode step that runs in resident groups. */
TEST(no_cuts)
{
	struct tuning_device device = {.name = "a gpu", .units = 132, .bf16 = true};
	struct cuts c;

	cuts_choose(&c, &shape, built_in, &(struct cuts_source){.device = &device});
	is_int(c.n_places, 0, "a set on tensor cores has no place in a table");
	is_int(c.given.sizes, 0, "so none of its sizes takes a row");
	cuts_choose(&c, &shape, built_in,
		    &(struct cuts_source){.device = &device, .attention = true});
	is_int(c.n_places, 1, "attention of other heads may have cuts alone");
}

/* Checks what tuning_use_text says of the table in `text`, as if a user had given it: it is searched first, and then
 * one that has a row for every product. */
static void says(const char *text, bool any_bits, const char *want)
{
	struct cuts c = {0};
	struct err e = {0};
	struct tuning_table *t = parse(text, &e), *own = parse(HEAD ROW(ANY, "product\t*\t*\t*",
									"blocks=4", "same\t1\t2"),
							       &e);
	char said[256];

	cuts_choose(&c, &shape, built_in,
		    &(struct cuts_source){.device = &cpu,
					  .tables = {t, own},
					  .any_bits = any_bits,
					  .products = true,
					  .attention = true,
					  .decode_step = true});
	tuning_use_text(&c.given, "t.tsv", said, sizeof(said));
	is_str(said, want, "what it says");
	tuning_free(t);
	tuning_free(own);
}

/* The shape has seven pairs of N and K (three products, two of experts, attention, the decode step), each with ten
 * M. */
TEST(use)
{
	static const char nothing[] = "tuning t.tsv: no row is for this device, these kernels and "
				      "this dtype; nothing changes";

	says(HEAD ROW(ANY, "product\t*\t*\t*", "blocks=4", "same\t1\t2"), false,
	     "tuning t.tsv: 30 of 70 sizes take a row of it");
	says(HEAD ROW("a cpu\t1.0\t2", "attention\t*\t*\t512", "-", "same\t1\t2"), false,
	     "tuning t.tsv: 1 of 70 sizes take a row of it");
	says(HEAD ROW(ANY, "product\t*\t*\t*", "chains=2", "differ\t1\t2"), false,
	     "tuning t.tsv: 0 of 70 sizes take a row of it");
	says(HEAD ROW(ANY, "product\t*\t*\t*", "chains=2", "differ\t1\t2"), true,
	     "tuning t.tsv: 30 of 70 sizes take a row of it");
	says(HEAD, false, nothing);
	says(HEAD ROW("a cpu\t1.1\t2", "product\t*\t*\t*", "blocks=4", "same\t1\t2"), false,
	     nothing);
	says(HEAD ANY "\tx86\tfloat32\tproduct\t*\t*\t*\tblocks=4\tsame\t1\t2\n", false, nothing);
	says(HEAD ANY "\tgeneric\tbfloat16\tproduct\t*\t*\t*\tblocks=4\tsame\t1\t2\n", false,
	     nothing);
}

int main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	run_tests();
	ok_all("tables come only from texts that are good");
	return done();
}
