/* How many pages and slots a number of bytes gives. */
#include <errno.h>

#include "engine/cache_size.h"
#include "base/macros.h"
#include "tests/tap.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* 64 sequences of 4096 tokens in pages of 64: 65 working slots of 2 MiB, 64 pages of 1 MiB a sequence. */
static struct cache_wish wish(void)
{
	return (struct cache_wish){
		.room = 16 * GIB,
		.budget = 20 * GIB,
		.max_buffer = 4 * GIB,
		.page_bytes = MIB,
		.page_buffer = MIB / 16,
		.slot_bytes = 2 * MIB,
		.slot_buffer = MIB / 4,
		.max_seqs = 64,
		.page_tokens = 64,
		.max_model_len = 4096,
	};
}

enum { WORKING = 65, FULL = 64 };

static uint64_t used(const struct cache_wish *w, const struct cache_size *s)
{
	return s->n_pages * w->page_bytes + s->n_slots * w->slot_bytes;
}

static bool refused(const struct cache_wish *w, int code, const char *a, const char *b)
{
	struct cache_size untouched = {7, 7, 7, 7}, s = untouched;
	struct err e = {0};
	int r = cache_size_choose(w, &s, &e);
	bool good = r == code && e.code == -code && strstr(e.text, a) && strstr(e.text, b) &&
		    !memcmp(&s, &untouched, sizeof(s));

	if (!good)
		printf("# %d: %s\n", r, e.text);
	return good;
}

/* Where the working slots leave no page, fewer sequences run, unless an option gave their number. */
TEST(fewer_sequences)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};

	w.room = 100 * MIB;
	check(refused(&w, -ENOMEM, "--max-num-seqs 64", "131.00 MiB"));
	w.fewer_seqs = true;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.max_seqs == 24 && s.n_slots == 25 && s.n_pages == 50);
	check(s.max_model_len == 50 * 64);
	w.length_asked = true;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.max_seqs == 17 && s.n_slots == 18 && s.n_pages == 64 && s.max_model_len == 4096);
	w.room = 67 * MIB;
	check(refused(&w, -ENOMEM, "--max-num-seqs 1 ", "68.00 MiB"));
	w.room = 68 * MIB;
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_seqs == 1 && s.n_pages == 64);
	w.length_asked = false;
	w.room = 131 * MIB;
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_seqs == 64 && s.n_pages == 1);
	w.slot_bytes = w.slot_buffer = 0;
	w.room = 3 * MIB;
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_seqs == 64 && s.n_pages == 3);
	ok_all("fewer sequences where their states leave no page");
}

TEST(division)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};
	uint32_t checkpoints;

	check(cache_size_choose(&w, &s, NULL) == 0);
	check(used(&w, &s) <= w.room && used(&w, &s) > w.room - 2 * MIB);
	checkpoints = s.n_slots - WORKING;
	check(checkpoints == w.room / 3 / w.slot_bytes);
	check(s.max_model_len == 4096);
	ok_all("what is not said is all there is, a third of it for checkpoints");

	w.asked = GIB;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(used(&w, &s) <= GIB && used(&w, &s) > GIB - 2 * MIB &&
	      s.n_slots - WORKING == GIB / 3 / w.slot_bytes);
	ok_all("as many bytes as asked for");
	w.asked = 0;
	w.asked_share = 0.25;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(used(&w, &s) <= 4 * GIB && used(&w, &s) > 4 * GIB - 2 * MIB);
	ok_all("as large a share of what is left as asked for");
	w.slot_bytes = w.slot_buffer = 0;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_slots == 0 && s.n_pages == 4096);
	ok_all("no recurrent layers, no slots");
	w = wish();
	w.page_bytes = w.page_buffer = 0;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_pages == FULL * 64 && s.n_slots == WORKING + w.room / 3 / w.slot_bytes);
	ok_all("no attention layers, as many pages as sequences can have");
}

TEST(longest)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};

	check(cache_size_longest(&w) == 4096);
	w.max_model_len = 10 << 20;
	check(cache_size_longest(&w) == 20 * 1024 * 64);
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_model_len <= cache_size_longest(&w));
	w.asked = GIB;
	check(cache_size_longest(&w) == 1024 * 64);
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_model_len <= cache_size_longest(&w));
	w.asked = 0;
	w.asked_share = 0.5;
	check(cache_size_longest(&w) == 10 * 1024 * 64);
	check(cache_size_choose(&w, &s, NULL) == 0 && s.max_model_len <= cache_size_longest(&w));
	ok_all("no sequence is longer than all bytes that the cache may have");
	w.asked = 1;
	check(cache_size_longest(&w) == 64);
	w.asked = 0;
	w.budget = UINT64_MAX / 4;
	w.page_bytes = 1;
	check(cache_size_longest(&w) == 10 << 20);
	ok_all("the bounds of that number");
	w.asked = GIB;
	w.length_asked = true;
	check(cache_size_longest(&w) == 10 << 20);
	w.length_asked = false;
	w.page_bytes = 0;
	check(cache_size_longest(&w) == 10 << 20);
	ok_all("as long as an option says, and as the model allows if its layers keep no pages");
}

TEST(scarce)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};

	w.length_asked = true;
	w.asked = WORKING * w.slot_bytes + FULL * w.page_bytes;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_slots == WORKING && s.n_pages == FULL && s.max_model_len == 4096);
	w.asked += 5 * MIB; /* two checkpoints (less than a third of all bytes) and a page */
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_slots == WORKING + 2 && s.n_pages == FULL + 1);
	ok_all("working slots and one sequence come before checkpoints");
	w.asked = WORKING * w.slot_bytes + FULL * w.page_bytes - 1;
	ok(refused(&w, -ENOMEM, "194.00 MiB", "--cache-memory"), "one byte less is too little");
	w.asked = 0;
	w.room = 100 * MIB;
	ok(refused(&w, -ENOMEM, "100.00 MiB", "--device-memory"), "so is a small device");
	w.asked = 101 * MIB;
	ok(refused(&w, -EINVAL, "101.00 MiB", "100.00 MiB"), "more than there is");
	w = wish();
	w.asked = WORKING * w.slot_bytes + 10 * w.page_bytes;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_slots == WORKING && s.n_pages == 10 && s.max_model_len == 640);
	ok_all("a length that nobody asked for is lowered");
	w.asked = WORKING * w.slot_bytes + w.page_bytes - 1;
	ok(refused(&w, -ENOMEM, "131.00 MiB", "--max-num-seqs 64"), "but not to nothing");
	w.asked = 1;
	ok(refused(&w, -ENOMEM, "0.00 MiB", "131.00 MiB"), "a byte");
}

TEST(shared)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};
	uint64_t all = 64 * FULL * MIB + WORKING * 2 * MIB;

	w.shared = true;
	w.budget = 64 * GIB;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_pages >= 64 * FULL && used(&w, &s) <= all * 3 / 2 + 4 * MIB &&
	      used(&w, &s) >= all * 3 / 2 - 4 * MIB);
	ok_all("memory that is shared: all sequences at full length, and checkpoints");
	w.budget = 8 * GIB;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(used(&w, &s) <= 2 * GIB + (FULL + 2 * WORKING) * MIB &&
	      used(&w, &s) > 2 * GIB + (FULL + 2 * WORKING) * MIB - 4 * MIB);
	ok_all("or a quarter of the budget beyond the least");
	w.room = GIB;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(used(&w, &s) <= GIB);
	w.max_seqs = 1;
	w.max_model_len = 64;
	w.room = 16 * GIB;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_slots >= 2 && s.n_pages >= 1 && used(&w, &s) < 20 * MIB);
	ok_all("and never more than there is, or than is of use");
}

TEST(buffers)
{
	struct cache_wish w = wish();
	struct cache_size s = {0};

	w.max_buffer = 100 * w.page_buffer;
	check(cache_size_choose(&w, &s, NULL) == 0);
	/* A buffer has room for 25 slots only; it is the allocation that will fail. */
	check(s.n_pages == 100 && s.n_slots == WORKING);
	w.max_buffer = 80 * w.slot_buffer;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_pages == 320 && s.n_slots == 80);
	ok_all("no more than the largest buffer holds");
	w = wish();
	w.page_bytes = w.slot_bytes = w.page_buffer = w.slot_buffer = 1;
	w.room = w.budget = w.max_buffer = UINT64_MAX / 4;
	check(cache_size_choose(&w, &s, NULL) == 0);
	check(s.n_pages == INT32_MAX && s.n_slots <= INT32_MAX);
	ok_all("and ids stay ints");
}

TEST_MAIN()
