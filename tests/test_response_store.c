/* protocol/responses/store: a store against naive models. One keeps everything and computes which responses may be there. Another
 * one computes which responses owners give up for room. */
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

static bool same_items(const struct response_entry *e, const char *want)
{
	buf_reset(&out);
	response_entry_items(e, &out);
	return !strcmp(text_of(&out), want);
}

static bool put_record(struct response_store *s, const struct response_record *r,
		       const struct response_hold *previous, uint64_t now)
{
	struct response_entry *e = response_entry_new(r);

	return e && response_store_put(s, e, previous, now);
}

/* Writes a response into `out`. False: this owner has none of this id, and `out` is empty. */
static bool get(struct response_store *s, const char *id, uint64_t owner, uint64_t now)
{
	struct response_entry *e = response_store_find(s, id, owner, now);

	buf_reset(&out);
	if (!e)
		return false;
	response_entry_write(e, &out);
	check(out.len == response_entry_length(e));
	response_store_drop(s, e);
	return true;
}

/* Lets *h hold the conversation of a response. False: this owner has none of this id. */
static bool hold(struct response_store *s, const char *id, uint64_t owner, uint64_t now,
		 struct response_hold *h)
{
	struct response_entry *e = response_store_find(s, id, owner, now);

	if (e)
		response_store_hold(s, e, h);
	response_store_drop(s, e);
	return e;
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
		struct response_hold held = {0};
		struct response_entry *e;
		bool there, kept, first[OWNERS];

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
			if (there && strlen(old->items) < ITEMS - 2 * TEXT &&
			    hold(s, old->id, owner, now, &held))
				memcpy(m->items, old->items, sizeof(m->items));
			join(m->items, m->input);
			join(m->items, m->output);
			snprintf(m->head, sizeof(m->head), "{%zu[", n_all);
			memcpy(m->whole, m->head, sizeof(m->head));
			memcpy(m->whole + strlen(m->whole), m->output, strlen(m->output));
			memcpy(m->whole + strlen(m->whole), "]}", 3);
			m->owner = owner;
			m->put = now;
			kept = put_record(s,
					  &(struct response_record){.id = m->id,
								    .owner = owner,
								    .input = as_text(m->input),
								    .output = as_text(m->output),
								    .head = as_text(m->head),
								    .tail = as_text("]}")},
					  held.turn ? &held : NULL, now);
			m->gone = !kept;
			response_store_release(s, &held);
			n_all++;
			break;
		case 2: /* get */
			kept = old && get(s, old->id, owner, now);
			check(!kept || (there && !strcmp(text_of(&out), old->whole)));
			break;
		case 3: /* the conversation */
			e = old ? response_store_find(s, old->id, owner, now) : NULL;
			check(!e || (there && same_items(e, old->items)));
			response_store_drop(s, e);
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
		/* Only the oldest of an owner may have been evicted: behind the first that is there, all are that the
		 * model has. */
		memset(first, 0, sizeof(first));
		for (size_t i = 0; i < n_all; i++) {
			if (all[i].gone)
				continue;
			if (get(s, all[i].id, all[i].owner, now)) {
				first[all[i].owner] = true;
				check(!strcmp(text_of(&out), all[i].whole));
			} else {
				check(!first[all[i].owner]);
				all[i].gone = true;
				evicted++;
			}
			check(!get(s, all[i].id, all[i].owner + OWNERS, now));
		}
	}
	now += age;
	get(s, "resp_0", 0, now);
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

static bool put(struct response_store *s, const char *id, uint64_t owner,
		const struct response_hold *previous, const char *input)
{
	return put_record(s,
			  &(struct response_record){.id = id,
						    .owner = owner,
						    .input = as_text(input),
						    .output = as_text("\"o\""),
						    .head = as_text("["),
						    .tail = as_text("]")},
			  previous, 10);
}

TEST(turns)
{
	struct response_store *s = response_store_new(1 << 20, 1000);
	struct response_hold a = {0};
	struct response_entry *b;
	struct response_text *texts;
	size_t n;

	check(put(s, "a", 1, NULL, "1"));
	check(hold(s, "a", 1, 10, &a) && put(s, "b", 1, &a, "2"));
	response_store_release(s, &a);
	response_store_release(s, &a);
	check(response_store_delete(s, "a", 1, 10) && !get(s, "a", 1, 10));
	b = response_store_find(s, "b", 1, 10);
	check(b && same_items(b, "1,\"o\",2,\"o\""));
	check(response_entry_texts(b, false, &texts, &n) == 0 && n == 3);
	check(texts[0].len == 1 && texts[1].len == 3 && !memcmp(texts[2].text, "2", 1));
	free(texts);
	response_store_drop(s, b);
	check(response_store_delete(s, "b", 1, 10) && response_store_bytes(s) == 0);
	response_store_free(s);
	ok_all("a conversation outlives the deletion of its responses");
}

/* A response that is read, and one that another goes on from, are deleted, and grow too old. */
TEST(references)
{
	for (int old = 0; old < 2; old++) {
		struct response_store *s = response_store_new(1 << 20, 1000);
		struct response_hold h = {0};
		struct response_entry *e;
		uint64_t bytes, now = old ? 10 + 1000 : 20;

		check(put(s, "a", 1, NULL, "1"));
		bytes = response_store_bytes(s);
		e = response_store_find(s, "a", 1, 10);
		check(e && hold(s, "a", 1, 10, &h));
		check(response_store_delete(s, "a", 1, now) == !old);
		check(!response_store_count(s) && !response_store_find(s, "a", 1, now));
		is_int((long long)response_store_bytes(s), (long long)bytes,
		       "what is read is counted after its %s", old ? "time" : "deletion");
		check(same_items(e, "1,\"o\""));
		response_store_drop(s, e);
		check(response_store_bytes(s) > 0 && response_store_bytes(s) < bytes);
		check(put_record(
			s, &(struct response_record){.id = "b", .owner = 1, .input = as_text("2")},
			&h, now));
		response_store_release(s, &h);
		e = response_store_find(s, "b", 1, now);
		check(e && same_items(e, "1,\"o\",2"));
		response_store_drop(s, e);
		check(response_store_delete(s, "b", 1, now) && !response_store_bytes(s));
		response_store_free(s);
	}
	ok_all("and a conversation goes on from it");
}

TEST(bounds)
{
	struct response_store *none = response_store_new(0, 1000);
	struct response_store *small = response_store_new(1000, 1000);
	static char large[1000], middle[450];

	memset(large, '1', sizeof(large) - 1);
	memset(middle, '1', sizeof(middle) - 1);
	check(!put(none, "a", 1, NULL, "1") && !response_store_count(none));
	check(!response_store_takes(none, 1) && response_store_takes(small, 1000));
	check(put(small, "a", 1, NULL, "1") && !put(small, "b", 1, NULL, large));
	check(!get(small, "b", 1, 10) && get(small, "a", 1, 10));
	ok_all("a store without room keeps nothing, and a response that is too large evicts nothing");
	check(!put(small, "c", 2, NULL, middle) && get(small, "a", 1, 10));
	check(response_store_delete(small, "a", 1, 10) && put(small, "c", 2, NULL, middle));
	ok_all("more than half is kept of an owner alone");
	response_store_free(none);
	response_store_free(small);
	response_store_free(NULL);
}

TEST(chain)
{
	struct response_store *s = response_store_new(UINT64_C(1) << 40, 1000);
	struct response_hold h = {0};
	char id[32];

	for (int i = 0; i < 100000; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		check(put(s, id, 1, h.turn ? &h : NULL, "1"));
		response_store_release(s, &h);
		check(hold(s, id, 1, 10, &h));
		check(i == 0 || response_store_delete(s, id, 1, 10));
	}
	check(response_store_count(s) == 1);
	response_store_release(s, &h);
	response_store_free(s);
	ok_all("a chain of 100,000 turns is freed without a deep stack");
}

/* ---- shares ---- */

enum { CLIENTS = 4, PUTS = 4000 };

static struct share {
	uint64_t owner, bytes;
	bool there;
} shares[PUTS];
static size_t n_shares;

/* The bytes that the model counts for an owner; `record` bytes are those of the record of an owner that has anything. */
static uint64_t model_bytes(uint64_t owner, uint64_t record)
{
	uint64_t n = 0;

	for (size_t i = 0; i < n_shares; i++)
		n += shares[i].there && shares[i].owner == owner ? shares[i].bytes : 0;
	return n ? n + record : 0;
}

static uint64_t model_all(uint64_t record)
{
	uint64_t n = 0;

	for (uint64_t owner = 0; owner < CLIENTS; owner++)
		n += model_bytes(owner, record);
	return n;
}

static void model_give_up(uint64_t owner)
{
	for (size_t i = 0; i < n_shares; i++)
		if (shares[i].there && shares[i].owner == owner) {
			shares[i].there = false;
			return;
		}
}

/* The rule of store.h, by the letter, for the response that was put last. */
static void model_put(uint64_t max, uint64_t record)
{
	struct share *last = &shares[n_shares - 1];
	const uint64_t own = last->owner;
	const bool alone = model_all(record) == model_bytes(own, record);

	if (last->bytes + record > (alone ? max : max / 2))
		return;
	last->there = true;
	while (model_all(record) > max) {
		uint64_t gives = 0;

		for (uint64_t i = 1; i < CLIENTS; i++)
			if (model_bytes(i, record) > model_bytes(gives, record))
				gives = i;
		if (model_bytes(own, record) > max / 2 &&
		    model_bytes(own, record) < model_all(record))
			gives = own;
		model_give_up(gives);
	}
}

/* Whether the store has what the model has. */
static bool same_as_model(struct response_store *s)
{
	char id[32];
	bool same = true;

	for (size_t i = 0; i < n_shares; i++) {
		snprintf(id, sizeof(id), "r%zu", i);
		same &= get(s, id, shares[i].owner, 10) == shares[i].there;
	}
	return same;
}

TEST(shares)
{
	struct response_store *s = response_store_new(1 << 20, 1000);
	static char text[12000];
	uint64_t one, record, max = 20000;
	size_t wrong = 0, kept = 0;
	char id[32];

	/* The bytes of a response without texts, and those of an owner's record. */
	check(put(s, "r0", 1, NULL, ""));
	record = response_store_bytes(s);
	check(put(s, "r1", 1, NULL, ""));
	one = response_store_bytes(s) - record;
	record -= one;
	check(put(s, "r0000", 2, NULL, ""));
	check(response_store_bytes(s) == 2 * record + 3 * one + 3);
	response_store_free(s);
	ok_all("an owner has one record");

	s = response_store_new(max, 1000);
	memset(text, '1', sizeof(text) - 1);
	for (n_shares = 0; n_shares < 1000;) {
		/* Some owners put often and much, others seldom. */
		uint64_t owner = below(10) ? below(1 + below(CLIENTS)) : below(CLIENTS);
		size_t len = below(10) ? below(300) : below(sizeof(text));
		struct share *m = &shares[n_shares];

		if (!below(5) && n_shares) {
			size_t i = below(n_shares);

			snprintf(id, sizeof(id), "r%zu", i);
			check(response_store_delete(s, id, shares[i].owner, 10) == shares[i].there);
			shares[i].there = false;
		}
		snprintf(id, sizeof(id), "r%zu", n_shares++);
		*m = (struct share){owner, one + strlen(id) - 2 + len, false};
		model_put(max, record);
		text[len] = 0;
		check(put(s, id, owner, NULL, text) == m->there);
		text[len] = '1';
		kept += m->there;
		wrong += !same_as_model(s);
		check(response_store_bytes(s) == model_all(record));
	}
	response_store_free(s);
	is_int((long long)wrong, 0, "owners give up what the rule says");
	ok_all("and all is counted");
	ok(kept > 500 && kept < 1000, "of many: %zu", kept);
}

TEST(fair)
{
	struct response_store *s = response_store_new(40000, 1000);
	char id[32];
	size_t n;

	for (n = 0; response_store_bytes(s) < 39000; n++) {
		snprintf(id, sizeof(id), "mine%zu", n);
		check(put(s, id, 1, NULL, "1"));
	}
	for (size_t i = 0; i < n / 4; i++) {
		snprintf(id, sizeof(id), "yours%zu", i);
		check(put(s, id, 2, NULL, "1"));
	}
	for (size_t i = 0; i < 3 * n; i++) {
		snprintf(id, sizeof(id), "more%zu", i);
		check(put(s, id, 1, NULL, "1"));
	}
	for (size_t i = 0; i < n / 4; i++) {
		snprintf(id, sizeof(id), "yours%zu", i);
		check(get(s, id, 2, 10));
	}
	check(!get(s, "mine0", 1, 10) && get(s, id, 2, 10));
	response_store_free(s);
	ok_all("an owner that puts many evicts no response of an owner with few");
}

/* An owner whose conversations are all held, and were deleted, gives them up for another owner. */
TEST(holds)
{
	struct response_store *s = response_store_new(40000, 1000);
	static struct response_hold h[300];
	static char text[300];
	char id[32];
	size_t n, left = 0;

	memset(text, '1', sizeof(text) - 1);
	for (n = 0; response_store_bytes(s) < 39000; n++) {
		snprintf(id, sizeof(id), "mine%zu", n);
		check(put(s, id, 1, NULL, text) && hold(s, id, 1, 10, &h[n]));
	}
	for (size_t i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "mine%zu", i);
		check(response_store_delete(s, id, 1, 10));
	}
	for (size_t i = 0; i < 4 * n; i++) {
		snprintf(id, sizeof(id), "yours%zu", i);
		check(put(s, id, 2, NULL, "1") && response_store_bytes(s) <= 40000);
	}
	for (size_t i = 0; i < n; i++) {
		left += h[i].turn != NULL;
		check(!i || h[i].turn || !h[i - 1].turn);
	}
	ok(left > 0 && left < n, "of %zu holds %zu are left, the newest", n, left);
	snprintf(id, sizeof(id), "after");
	check(!put(s, id, 1, &h[0], "2") && put(s, id, 1, &h[n - 1], "2"));
	check(get(s, id, 1, 10));
	for (size_t i = 0; i < n; i++)
		response_store_release(s, &h[i]);
	response_store_free(s);
	ok_all("a response goes on from a hold that is left alone");
}

int main(void)
{
	buf_init(&out, 16 << 20);
	run_tests();
	buf_release(&out);
	return done();
}
