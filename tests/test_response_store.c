/* protocol/responses/store: a store against a naive model, which keeps everything and computes what has to be there. */
#include <stdlib.h>

#include "base/mix.h"
#include "protocol/responses/store.h"
#include "tests/tap.h"

enum { MAX = 1500, OWNERS = 3, TEXT = 200, ITEMS = 4000 };

/* A response of the model: everything that was ever put, in the order of putting. */
struct made {
	char id[32], head[32], input[TEXT], output[TEXT], items[ITEMS], whole[2 * TEXT];
	uint64_t owner, put;
	bool gone;
};

static struct made all[MAX];
static size_t n_all;
static uint64_t state = 7;
static struct buf out;

static uint64_t below(uint64_t n)
{
	return mix_next(&state) % n;
}

static const char *text_of(struct buf *b)
{
	return buf_str(b);
}

static struct response_text as_text(const char *s)
{
	return (struct response_text){s, strlen(s)};
}

/* Makes a list of some items, perhaps none. */
static void make_items(char *to, const char *what, size_t number, size_t most)
{
	size_t n = below(most + 1), len = 0;

	to[0] = 0;
	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(to + len, TEXT - len, "%s\"%s%zu.%zu\"", i ? "," : "", what,
					number, i);
}

/* Appends a list of items to another one. */
static void join(char to[ITEMS], const char more[TEXT])
{
	size_t len = strlen(to);

	if (len && more[0])
		to[len++] = ',';
	memcpy(to + len, more, strlen(more) + 1);
}

static bool same_items(const struct response_turn *t, const char *want)
{
	buf_reset(&out);
	response_turn_items(t, true, &out);
	return !strcmp(text_of(&out), want);
}

/* One random store against the model. Returns the number of responses that were evicted for room. */
static size_t run(uint64_t max_bytes, uint64_t age, int events)
{
	struct response_store *s = response_store_new(max_bytes, age);
	uint64_t now = 1000;
	size_t evicted = 0;

	n_all = 0;
	for (int event = 0; event < events && n_all < MAX; event++) {
		struct made *m = &all[n_all], *old = n_all ? &all[below(n_all)] : NULL;
		uint64_t owner = below(OWNERS);
		struct response_turn *t = NULL;
		bool there, kept;

		now += below(20);
		for (size_t i = 0; i < n_all; i++)
			all[i].gone |= all[i].put + age <= now;
		there = old && !old->gone && old->owner == owner;
		switch (below(5)) {
		case 0:
		case 1: /* put, perhaps behind an earlier one */
			memset(m, 0, sizeof(*m));
			snprintf(m->id, sizeof(m->id), "resp_%zu", n_all);
			make_items(m->input, "in", n_all, 6);
			make_items(m->output, "out", n_all, 3);
			if (there && strlen(old->items) < ITEMS - 2 * TEXT)
				t = response_store_turn(s, old->id, owner, now);
			if (t)
				memcpy(m->items, old->items, sizeof(m->items));
			join(m->items, m->input);
			join(m->items, m->output);
			snprintf(m->head, sizeof(m->head), "{%zu[", n_all);
			memcpy(m->whole, m->head, sizeof(m->head));
			memcpy(m->whole + strlen(m->whole), m->output, strlen(m->output));
			memcpy(m->whole + strlen(m->whole), "]}", 3);
			m->owner = owner;
			m->put = now;
			kept = response_store_put(
				s,
				&(struct response_record){.id = m->id,
							  .owner = owner,
							  .previous = t,
							  .input = as_text(m->input),
							  .output = as_text(m->output),
							  .head = as_text(m->head),
							  .tail = as_text("]}")},
				now);
			m->gone = !kept;
			if (t)
				response_turn_drop(s, t);
			n_all++;
			break;
		case 2: /* get */
			buf_reset(&out);
			kept = old && response_store_get(s, old->id, owner, now, &out);
			check(!kept || (there && !strcmp(text_of(&out), old->whole)));
			check(kept || !out.len);
			break;
		case 3: /* the conversation */
			t = old ? response_store_turn(s, old->id, owner, now) : NULL;
			check(!t || (there && same_items(t, old->items)));
			if (t)
				response_turn_drop(s, t);
			break;
		default: /* delete, seldom */
			if (!old || below(4))
				break;
			kept = response_store_delete(s, old->id, owner, now);
			check(!kept || there);
			if (kept)
				old->gone = true;
		}
		check(response_store_bytes(s) <= max_bytes);
		/* Only the oldest may have been evicted: behind the first that is there, all are that the model has. */
		there = false;
		kept = false;
		for (size_t i = 0; i < n_all; i++) {
			if (all[i].gone)
				continue;
			buf_reset(&out);
			if (response_store_get(s, all[i].id, all[i].owner, now, &out)) {
				there = true;
				check(!strcmp(text_of(&out), all[i].whole));
			} else {
				check(!there);
				all[i].gone = true;
				evicted++;
			}
			kept |= response_store_get(s, all[i].id, all[i].owner + OWNERS, now, &out);
		}
		check(!kept);
	}
	now += age;
	response_store_get(s, "resp_0", 0, now, &out);
	is_int(response_store_count(s), 0, "after the time nothing is left");
	is_int(response_store_bytes(s), 0, "and no byte is counted");
	response_store_free(s);
	return evicted;
}

TEST(model)
{
	size_t roomy, tight;

	roomy = run(1 << 30, 100000, 1500);
	ok_all("a store with room gives back what was put, to its owner alone");
	is_int(roomy, 0, "and evicts nothing");
	tight = run(20000, 100000, 1500);
	ok_all("a tight store keeps its bound, and evicts the oldest");
	ok(tight > 100, "of which there were many: %zu", tight);
	run(20000, 300, 1500);
	ok_all("a store of short memory forgets in time");
}

static bool put(struct response_store *s, const char *id, struct response_turn *previous,
		const char *input)
{
	return response_store_put(s,
				  &(struct response_record){.id = id,
							    .owner = 1,
							    .previous = previous,
							    .input = as_text(input),
							    .output = as_text("\"o\""),
							    .head = as_text("["),
							    .tail = as_text("]")},
				  10);
}

TEST(turns)
{
	struct response_store *s = response_store_new(1 << 20, 1000);
	struct response_turn *a, *b;

	check(put(s, "a", NULL, "1"));
	a = response_store_turn(s, "a", 1, 10);
	check(a && put(s, "b", a, "2"));
	response_turn_drop(s, a);
	check(response_store_delete(s, "a", 1, 10));
	check(!response_store_get(s, "a", 1, 10, &out));
	b = response_store_turn(s, "b", 1, 10);
	check(b && same_items(b, "1,\"o\",2,\"o\""));
	buf_reset(&out);
	response_turn_items(b, false, &out);
	check(!strcmp(text_of(&out), "1,\"o\",2"));
	check(response_store_delete(s, "b", 1, 10) && response_store_bytes(s) > 0);
	check(same_items(b, "1,\"o\",2,\"o\""));
	response_turn_drop(s, b);
	check(response_store_bytes(s) == 0);
	response_store_free(s);
	ok_all("a conversation outlives the deletion of its responses");
}

TEST(bounds)
{
	struct response_store *none = response_store_new(0, 1000);
	struct response_store *small = response_store_new(400, 1000);
	static char large[500];

	memset(large, '1', sizeof(large) - 1);
	check(!put(none, "a", NULL, "1") && !response_store_count(none));
	check(!response_store_takes(none, 1) && response_store_takes(small, 400));
	check(put(small, "a", NULL, "1") && !put(small, "b", NULL, large));
	check(!response_store_bytes(small) && !response_store_count(small));
	check(!response_store_get(small, "b", 1, 10, &out));
	response_store_free(none);
	response_store_free(small);
	response_store_free(NULL);
	ok_all("a store without room keeps nothing, nor a response that is larger than the store");
}

TEST(chain)
{
	struct response_store *s = response_store_new(UINT64_C(1) << 40, 1000);
	struct response_turn *t = NULL;
	char id[16];

	for (int i = 0; i < 100000; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		check(put(s, id, t, "1"));
		if (t)
			response_turn_drop(s, t);
		t = response_store_turn(s, id, 1, 10);
		check(i == 0 || response_store_delete(s, id, 1, 10));
	}
	check(response_store_count(s) == 1);
	response_turn_drop(s, t);
	response_store_free(s);
	ok_all("a chain of 100,000 turns is freed without a deep stack");
}

int main(void)
{
	buf_init(&out, 1 << 20);
	run_tests();
	buf_release(&out);
	return done();
}
