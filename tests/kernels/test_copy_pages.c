/* copy_pages.cl: copies of the pages of a layer with a sliding window. */
#include <string.h>

#include "kernels/step.h"
#include "tests/kernels/harness.h"

enum { PAGES = 7, AT = 3 };

static const struct sizes {
	uint32_t kv_heads, head_dim, page_tokens;
	bool small;
} all_sizes[] = {{1, 64, 64, false}, {2, 12, 64, true}, {3, 80, 128, false}};

/* The pages of one buffer, ints of any bits, on the device and on the host. */
struct pages {
	cl_mem mem;
	int32_t *want;
};

static struct pages random_pages(uint64_t n)
{
	struct pages p = {buffer_out(n * 4), CASE_INTS(n)};

	for (uint64_t i = 0; i < n; i++)
		p.want[i] = (int32_t)(random_below(1u << 31) << 1 | random_below(2));
	buffer_write(p.mem, p.want, n * 4);
	return p;
}

static void test_sizes(const struct way *w, const struct sizes *s)
{
	/* page 5 goes to two places, and 0 and 3 stay; the first copy of the table is not of the launch */
	static const int32_t copies[][COPY_INTS] = {{0, 3}, {5, 1}, {5, 6}, {2, 4}};
	uint64_t ints =
		(uint64_t)s->kv_heads * s->head_dim * s->page_tokens * (w->bf16 ? 2 : 4) / 4;
	int32_t step[AT + 4 * COPY_INTS] = {0};
	struct kernel_shape shape = common_shape();
	struct pages pages[2];
	struct kernels *k;

	shape.heads = shape.kv_heads = s->kv_heads;
	shape.head_dim = s->head_dim;
	shape.page_tokens = s->page_tokens;
	shape.window = 100;
	k = set_open(w, shape);
	if (!k)
		return;
	random_seed(ints);
	memcpy(step + AT, copies, sizeof(copies));
	for (int i = 0; i < 2; i++)
		pages[i] = random_pages(PAGES * ints);
	kernel_copy_pages(k, buffer_ints(step, ARRAY_SIZE(step)), AT + COPY_INTS, 3, pages[0].mem,
			  pages[1].mem);
	set_finish(k);
	for (int i = 0; i < 2; i++) {
		for (size_t c = 1; c < ARRAY_SIZE(copies); c++)
			memcpy(pages[i].want + (uint64_t)copies[c][COPY_TO] * ints,
			       pages[i].want + (uint64_t)copies[c][COPY_FROM] * ints, ints * 4);
		check(!memcmp(read_ints(pages[i].mem, PAGES * ints), pages[i].want,
			      PAGES * ints * 4));
	}
	case_end();
	kernels_close(k);
	ok_way(w, "%u KV heads of %u, pages of %u", s->kv_heads, s->head_dim, s->page_tokens);
}

static void test(const struct way *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(all_sizes); i++)
		if (!harness_small() || all_sizes[i].small)
			test_sizes(w, &all_sizes[i]);
}

const struct kernel_test kernel_test = {.programs = "copy_pages.cl", .way = test};
