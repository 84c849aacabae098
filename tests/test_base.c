/* base/: buf, arena, commas, err, ids, array, hash, list, majority, map, mix, queue, parallel and the limit of log lines. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/commas.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/list.h"
#include "base/log.h"
#include "base/majority.h"
#include "base/map.h"
#include "base/mix.h"
#include "base/parallel.h"
#include "base/queue.h"
#include "tests/random.h"
#include "tests/tap.h"

TEST(buf)
{
	struct buf b;

	buf_init(&b, 100);
	is_str(buf_str(&b), "", "an empty buffer reads as an empty string");
	buf_puts(&b, "hello");
	buf_printf(&b, " %d", 42);
	buf_putc(&b, '!');
	is_str(buf_str(&b), "hello 42!", "appends in order");
	buf_consume(&b, 6);
	is_str(buf_str(&b), "42!", "consume drops the front");
	for (int i = 0; i < 97; i++)
		buf_putc(&b, 'x');
	ok(!b.failed && b.len == 100, "grows up to its maximum");
	buf_putc(&b, 'y');
	ok(b.failed && b.len == 100 && b.data[99] == 'x', "refuses more and keeps what it has");
	buf_reset(&b);
	ok(!b.failed && b.len == 0, "reset clears the failure");
	ok(buf_reserve(&b, 101) == -ENOBUFS, "reserve past the maximum is ENOBUFS");
	ok(buf_reserve(&b, SIZE_MAX) == -ENOBUFS, "reserve does not overflow");
	buf_release(&b);
}

TEST(commas)
{
	static const struct {
		const char *list, *parts; /* each part with a bar behind it */
	} rows[] = {{"", "|"},	   {"a", "a|"},	  {"ab,c,de", "ab|c|de|"}, {"a,", "a||"},
		    {",a", "|a|"}, {",,", "|||"}, {"a b, c", "a b| c|"}};
	const char *list = NULL, *part;
	struct buf b;
	size_t n;

	buf_init(&b, 100);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		buf_reset(&b);
		list = rows[i].list;
		while (commas_next(&list, &part, &n)) {
			buf_append(&b, part, n);
			buf_putc(&b, '|');
		}
		is_str(buf_str(&b), rows[i].parts, "the parts of \"%s\"", rows[i].list);
	}
	ok(!commas_next(&list, &part, &n), "behind the last part there is none");
	buf_release(&b);
}

TEST(arena)
{
	struct arena a;
	char *s;

	arena_init(&a, 1 << 20);
	for (size_t i = 1; i < 500; i++) {
		char *p = arena_alloc(&a, i);

		check(p && (uintptr_t)p % 16 == 0);
		for (size_t k = 0; p && k < i; k++)
			check(p[k] == 0);
		if (p)
			memset(p, 0xff, i);
	}
	ok_all("allocations are zeroed, aligned and apart");
	s = arena_strndup(&a, "abcdef", 3);
	is_str(s, "abc", "strndup ends the copy with a 0");
	ok(!arena_alloc(&a, 2 << 20), "past the maximum gives NULL");
	ok(!arena_array(&a, SIZE_MAX / 2, 16), "array does not overflow");
	arena_release(&a);
	arena_init(&a, 100);
	ok(!arena_alloc(&a, 97) && a.used == 0, "the limit counts the rounded size");
	ok(arena_alloc(&a, 96) && !arena_alloc(&a, 1) && a.used == 96, "and all below it is there");
	arena_release(&a);
	arena_init(&a, SIZE_MAX);
	ok(!arena_alloc(&a, SIZE_MAX) && !arena_alloc(&a, SIZE_MAX - 8),
	   "rounding does not overflow");
	arena_release(&a);
}

TEST(err)
{
	struct err e = {0};

	is_int(err_param(&e, EINVAL, "top_p", "must be at most %d", 1), -EINVAL, "returns -errno");
	is_str(e.text, "must be at most 1", "text");
	is_str(e.param, "top_p", "param");
	err_prefix(&e, "request %d", 7);
	is_str(e.text, "request 7: must be at most 1", "prefix");
	is_int(err_set(NULL, ENOMEM, "x"), -ENOMEM, "no struct is fine");
}

TEST(ids)
{
	struct ids a = {0};

	for (int i = 0; i < 1000; i++)
		check(ids_push(&a, i) == 0);
	for (int i = 0; i < 1000; i++)
		check(a.v[i] == i);
	ok_all("ids keep their order while the array grows");
	is_int(ids_reserve(&a, SIZE_MAX / 2), -ENOMEM, "an absurd size is refused");
	ids_keep_last(&a, 1000);
	is_int(a.len, 1000, "all are kept");
	ids_keep_last(&a, 3);
	ok(a.len == 3 && a.v[0] == 997 && a.v[2] == 999, "the last three are kept");
	ok(!ids_push(&a, 5) && a.len == 4 && a.v[2] == 999 && a.v[3] == 5, "and others follow");
	ids_release(&a);
}

TEST(array)
{
	uint8_t cap = 0;
	char *v = NULL;
	size_t n = 0;

	while (array_grow(v, cap, n + 1))
		v[n] = (char)(n + 1), n++;
	ok(n == UINT8_MAX && cap == UINT8_MAX, "an array grows as far as its type can count");
	ok(!array_grow(v, cap, 1000) && v[100] == 101 && v[254] == (char)255,
	   "and stays as it was");
	free(v);
}

TEST(hash)
{
	struct hash128 a = HASH128_INIT, b = HASH128_INIT;
	char hex[33];

	hash128_hex(&a, hex);
	is_str(hex, "6c62272e07bb014262b821756295c58d", "offset basis of FNV-1a 128");
	hash128_update(&a, "a", 1);
	hash128_hex(&a, hex);
	is_str(hex, "d228cb696f1a8caf78912b704e4a8964", "published value for \"a\"");
	a = HASH128_INIT;
	hash128_text(&a, "ab");
	hash128_text(&a, "c");
	hash128_text(&b, "a");
	hash128_text(&b, "bc");
	ok(a.value != b.value, "texts are told apart where they are cut");
}

struct element {
	struct list node;
	int number;
};

TEST(list)
{
	struct element e[5];
	struct list head;
	int n = 0;

	list_init(&head);
	ok(list_empty(&head) && !list_first(&head, struct element, node), "an empty list");
	for (int i = 0; i < 5; i++) {
		e[i].number = i;
		list_append(&head, &e[i].node);
	}
	list_for_each (at, &head, struct element, node) {
		check(at->number == n++);
		if (at->number % 2)
			list_remove(&at->node);
	}
	check(n == 5);
	ok_all("elements in the order of their arrival; each may leave when it is visited");
	list_remove(&e[1].node);
	list_append(&e[2].node, &e[1].node);
	ok(list_first(&head, struct element, node) == &e[0] && e[0].node.next == &e[1].node &&
		   e[1].node.next == &e[2].node && e[2].node.next == &e[4].node,
	   "before an element of the list");
}

struct entry {
	struct map_node node;
	uint64_t key;
	bool drained;
};

static struct entry *find_entry(const struct map *m, uint64_t key)
{
	for (struct map_node *n = map_first(m, key / 2); n; n = map_next(n))
		if (container_of(n, struct entry, node)->key == key)
			return container_of(n, struct entry, node);
	return NULL;
}

static void drain(void *arg, struct map_node *n)
{
	container_of(n, struct entry, node)->drained = true;
	++*(int *)arg;
}

/* The keys 2 k and 2 k + 1 have the same hash, k. */
TEST(majority)
{
	int found = 0;

	for (int round = 0; round < 2000; round++) {
		uint64_t votes[4] = {0}, all = 0;
		struct majority m = {0};

		for (int i = 0; i < 10; i++) {
			/* One of the candidates gets more votes than the others. */
			uint64_t candidate = random_below(4), n = random_below(candidate ? 4 : 16);

			majority_vote(&m, candidate, n);
			votes[candidate] += n;
			all += n;
		}
		for (uint64_t i = 0; i < 4; i++) {
			check(2 * votes[i] <= all || m.leader == i);
			found += 2 * votes[i] > all;
		}
	}
	ok_all("the candidate with more than half of the votes leads");
	ok(found > 500 && found < 1900, "%d of 2000 votes had a majority", found);
}

TEST(map)
{
	enum { N = 1000 };
	static struct entry e[N + 1];
	struct map m;
	int drained = 0;

	check(map_init(&m, 1) == 0);
	for (uint64_t i = 0; i < N; i++) {
		e[i].key = i;
		check(map_reserve(&m) == 0);
		map_insert(&m, &e[i].node, i / 2);
	}
	for (uint64_t i = 0; i < N; i++)
		check(find_entry(&m, i) == &e[i]);
	check(m.n == N && m.n_buckets >= N && !find_entry(&m, N));
	ok_all("every element is found in a map that has grown");
	for (uint64_t i = 0; i < N; i += 3)
		map_remove(&m, &e[i].node);
	for (uint64_t i = 0; i < N; i++)
		check(find_entry(&m, i) == (i % 3 ? &e[i] : NULL));
	ok_all("and the others when every third went");
	e[N].key = 1;
	map_replace(&m, &e[1].node, &e[N].node);
	ok(find_entry(&m, 1) == &e[N], "another element in the place of one");
	map_append(&m, &e[0].node, 0);
	ok(map_first(&m, 0) == &e[N].node && map_next(&e[N].node) == &e[0].node &&
		   !map_next(&e[0].node),
	   "behind those with the same hash");
	map_insert(&m, &e[1].node, 0);
	ok(map_first(&m, 0) == &e[1].node, "before them");
	map_drain(&m, drain, &drained);
	ok(m.n == 0 && drained == N - N / 3 + 1 && e[N].drained && e[0].drained && !e[3].drained,
	   "drained");
	map_release(&m);
}

TEST(mix)
{
	uint64_t state = 1234567;

	ok(mix_next(&state) == UINT64_C(6457827717110365317) &&
		   mix_next(&state) == UINT64_C(3203168211198807973),
	   "the published first numbers of SplitMix64");
	ok(mix_product(UINT64_C(1) << 63, 6) == 3, "both halves of a product");
	ok(mix_add(mix_add(0, 1), 2) != mix_add(mix_add(0, 2), 1), "a list's order counts");
}

enum { PRODUCERS = 4, PER_PRODUCER = 2000 };

struct item {
	struct queue_node node;
	int producer, number;
};

struct producer {
	struct queue *q;
	struct item *items;
};

static void *produce(void *arg)
{
	struct producer *p = arg;

	for (int i = 0; i < PER_PRODUCER; i++)
		queue_push(p->q, &p->items[i].node);
	return NULL;
}

TEST(queue)
{
	static struct item items[PRODUCERS][PER_PRODUCER];
	struct producer producers[PRODUCERS];
	int next[PRODUCERS] = {0}, seen = 0;
	pthread_t threads[PRODUCERS];
	struct queue q;

	queue_init(&q);
	queue_wake(&q);
	queue_wait(&q, 0);
	ok(!queue_pop(&q), "a wake ends a wait on an empty queue");
	queue_wait(&q, 1000000);
	ok(true, "a wait ends at its time-out");
	for (int p = 0; p < PRODUCERS; p++) {
		for (int i = 0; i < PER_PRODUCER; i++)
			items[p][i] = (struct item){.producer = p, .number = i};
		producers[p] = (struct producer){&q, items[p]};
		pthread_create(&threads[p], NULL, produce, &producers[p]);
	}
	while (seen < PRODUCERS * PER_PRODUCER) {
		struct queue_node *n;

		queue_wait(&q, 0);
		while ((n = queue_pop(&q))) {
			struct item *it = container_of(n, struct item, node);

			check(it->number == next[it->producer]);
			next[it->producer]++;
			seen++;
		}
	}
	ok_all("every node arrives once, in its producer's order");
	for (int p = 0; p < PRODUCERS; p++)
		pthread_join(threads[p], NULL);
	queue_release(&q);
}

static void count(void *arg)
{
	atomic_fetch_add((atomic_size_t *)arg, 1);
}

static void count_number(void *arg, size_t i)
{
	atomic_fetch_add((atomic_size_t *)arg + i, 1);
}

TEST(parallel)
{
	atomic_size_t calls = 0, each[1000] = {0};
	cpu_set_t set;

	check(sched_getaffinity(0, sizeof(set), &set) == 0);
	parallel_run(1000, count, &calls);
	is_int((long long)calls, MIN(CPU_COUNT(&set), 64), "a thread for each processor");
	calls = 0;
	parallel_run(1, count, &calls);
	is_int((long long)calls, 1, "and no more than are asked for");
	parallel_for(ARRAY_SIZE(each), count_number, each);
	for (size_t i = 0; i < ARRAY_SIZE(each); i++)
		check(each[i] == 1);
	ok_all("they share numbers, each of which has its turn once");
}

TEST(log_limit)
{
	struct log_limit limit = {0};
	char more[LOG_MORE_MAX];

	ok(log_due(&limit, 1, more) && !more[0], "the first line of a kind is due");
	for (uint64_t i = 2; i < 1000; i++)
		check(!log_due(&limit, i, more));
	ok_all("those behind it are not");
	ok(log_due(&limit, 60000000001, more), "a minute later one is");
	is_str(more, " (and 998 more before)", "which says how many there were");
	ok(log_due(&limit, 200000000000, more) && !more[0], "once");
	limit = (struct log_limit){0};
	for (uint64_t i = 0; i < 1000; i++)
		check(log_due_often(&limit, 1 + i, more) == (i < LOG_BURST));
	ok_all("of lines that are normal some are due each minute");
	ok(log_due_often(&limit, 60000000001, more), "and again a minute after the first");
	is_str(more, " (and 936 more before)", "with the number of the others");
	for (uint64_t i = 1; i < 1000; i++)
		check(log_due_often(&limit, 60000000001 + i, more) == (i < LOG_BURST));
	ok_all("as many as before");
}

TEST_MAIN()
