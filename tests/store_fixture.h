/* Helpers of the tests of engine/store/: items whose tokens, keys and bytes follow from a number, a store with its
 * events, and its files. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/store/file.h"
#include "engine/store/key.h"
#include "engine/store/store.h"
#include "tests/tap.h"

enum { ITEM_TOKENS = 4, ITEM_PAGE_BYTES = 3000, ITEM_STATE_BYTES = 20000 };

/* A page or a state, which item_make makes: number `i` (0, 1, ...) of path `path`. */
struct item {
	struct tier_item item;
	struct content_key parent;
	uint32_t depth;
	int32_t tokens[ITEM_TOKENS];
};

static inline void item_make(struct item *ret, uint32_t path, uint32_t i, enum tier_kind kind)
{
	const uint64_t space[2] = {0};
	struct content_key key = {0}, parent = {0};

	if (content_key_root(space, &key) < 0)
		abort();
	for (uint32_t k = 0; k <= i; k++) {
		parent = key;
		for (uint32_t t = 0; t < ITEM_TOKENS; t++)
			ret->tokens[t] = (int32_t)(path * 1000 + k * ITEM_TOKENS + t);
		if (content_key_next(&parent, ret->tokens, ITEM_TOKENS, &key) < 0)
			abort();
	}
	ret->item = (struct tier_item){.key = key, .kind = kind};
	ret->parent = parent;
	ret->depth = (i + 1) * ITEM_TOKENS;
}

/* make_path makes the first n pages of one path, make_paths the first page of each of n paths. */
static inline void make_path(struct item *it, uint32_t n, uint32_t path)
{
	for (uint32_t i = 0; i < n; i++)
		item_make(&it[i], path, i, TIER_PAGE);
}

static inline void make_paths(struct item *it, uint32_t n, uint32_t path)
{
	for (uint32_t i = 0; i < n; i++)
		item_make(&it[i], path + i, 0, TIER_PAGE);
}

static inline size_t item_bytes(const struct item *it)
{
	return it->item.kind == TIER_PAGE ? ITEM_PAGE_BYTES : ITEM_STATE_BYTES;
}

static inline uint8_t item_byte(const struct item *it, size_t at)
{
	uint64_t h = (it->item.key.v[0] + (uint64_t)it->item.kind + at / 8) * 0x9e3779b97f4a7c15u;

	h ^= h >> 29;
	return (uint8_t)(h >> at % 8 * 8);
}

static inline struct store_block *item_block(const struct item *it)
{
	struct store_block *b = store_block_new(item_bytes(it));

	if (!b)
		abort();
	for (size_t i = 0; i < b->bytes; i++)
		((uint8_t *)b->data)[i] = item_byte(it, i);
	return b;
}

static inline bool item_right(const struct item *it, const struct store_block *b)
{
	if (!b || b->bytes != item_bytes(it))
		return false;
	for (size_t i = 0; i < b->bytes; i++)
		if (((const uint8_t *)b->data)[i] != item_byte(it, i))
			return false;
	return true;
}

static inline int item_put(struct store *s, const struct item *it)
{
	const struct store_put put = {.item = it->item,
				      .parent = it->parent,
				      .depth = it->depth,
				      .tokens = it->item.kind == TIER_PAGE ? it->tokens : NULL,
				      .block = item_block(it)};

	return store_put(s, &put);
}

#define SECOND UINT64_C(1000000000)

/* ---- a store to test ---- */

struct fixture {
	struct store *store;
	uint64_t found, gone, got; /* numbers of events seen, by type */
	struct store_event last;   /* the last event of type STORE_GONE or STORE_GOT */
	atomic_uint wakes;
};

struct identity_arg {
	uint8_t first; /* first byte of the identity that `identify` gives */
	int result;
	atomic_bool hold; /* `identify` waits while this is set */
};

static struct identity_arg plain = {.first = 1};

static inline int identify(void *arg, const char *memo, const atomic_bool *cancel,
			   struct cache_identity *ret, struct err *e)
{
	struct identity_arg *a = arg;

	while (atomic_load(&a->hold)) {
		if (atomic_load(cancel))
			return -ECANCELED;
		usleep(1000);
	}
	*ret = (struct cache_identity){{a->first, 0xab}};
	return a->result ? err_set(e, -a->result, "the weights cannot be read") : 0;
}

static inline void count_wake(void *arg)
{
	struct fixture *f = arg;

	atomic_fetch_add(&f->wakes, 1);
}

static inline void pause_ms(unsigned ms)
{
	usleep(ms * 1000);
}

/* Waits as long as the condition holds, some ten seconds at most. */
#define wait_while(condition)                                      \
	for (int tries = 0; tries < 10000 && (condition); tries++) \
	pause_ms(1)

static inline struct store_config config_of(const char *dir)
{
	return (struct store_config){
		.dir = dir,
		.page_bytes = ITEM_PAGE_BYTES,
		.state_bytes = ITEM_STATE_BYTES,
		.page_tokens = ITEM_TOKENS,
		.identify = identify,
		.arg = &plain,
		.retry_ns = SECOND / 5,
	};
}

static inline struct store_stats stats_of(struct fixture *f)
{
	struct store_stats stats;

	store_stats(f->store, &stats);
	return stats;
}

/* Takes all events that are there. Each of type STORE_GONE or STORE_GOT becomes f->last, in place of an earlier one,
 * whose block is given back. */
static inline void drain(struct fixture *f)
{
	struct store_event ev;

	while (store_poll(f->store, &ev)) {
		f->found += ev.type == STORE_FOUND;
		f->gone += ev.type == STORE_GONE;
		f->got += ev.type == STORE_GOT;
		if (ev.type != STORE_FOUND) {
			store_block_put(f->last.block);
			f->last = ev;
		}
	}
}

/* Waits until the store has listed its files and has nothing left to write. False: that takes more than ten seconds. */
static inline bool settle(struct fixture *f)
{
	wait_while(stats_of(f).disk == STORE_DISK_OPENING || stats_of(f).queued_items);
	drain(f);
	return stats_of(f).disk != STORE_DISK_OPENING && !stats_of(f).queued_items;
}

static inline void open_config(struct fixture *f, struct store_config *c)
{
	struct err e = {0};

	*f = (struct fixture){0};
	c->wake = count_wake;
	c->wake_arg = f;
	if (store_open(c, &f->store, &e) < 0) {
		printf("# %s\n", e.text);
		abort();
	}
}

static inline void open_settled(struct fixture *f, struct store_config *c)
{
	open_config(f, c);
	if (!settle(f))
		abort();
}

static inline void open_dir(struct fixture *f, const char *dir)
{
	struct store_config c = config_of(dir);

	open_settled(f, &c);
}

static inline void close_store(struct fixture *f)
{
	store_close(f->store, 10 * SECOND);
	store_block_put(f->last.block);
	f->store = NULL;
	f->last.block = NULL;
}

/* Asks the store for an item and waits for the answer, which is then in f->last. Returns 0 or the error. */
static inline int get(struct fixture *f, const struct item *it)
{
	uint64_t got;
	int r;

	drain(f);
	got = f->got;
	r = store_get(f->store, &it->item, f);
	if (r < 0)
		return r;
	wait_while((drain(f), f->got == got));
	return f->last.error;
}

static inline bool gets_right(struct fixture *f, const struct item *it)
{
	return get(f, it) == 0 && item_right(it, f->last.block) && f->last.tag == f;
}

/* Puts an item, and waits until it is written. False: the store did not take it, or the wait was too long. */
static inline bool puts_one(struct fixture *f, const struct item *it)
{
	return item_put(f->store, it) == 0 && settle(f);
}

static inline void put_all(struct fixture *f, const struct item *it, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		check(item_put(f->store, &it[i]) == 0);
}

/* Returns the path of an item's file below dir; valid until the next call. identity: first byte of the identity. */
static inline const char *file_of(const char *dir, const struct item *it, uint8_t identity)
{
	static char path[1024];
	char name[STORE_FILE_NAME_MAX];

	store_file_name(&it->item, it->depth, name);
	snprintf(path, sizeof(path), "%s/%02xab000000000000/%.2s/%s", dir, identity, name, name);
	return path;
}

static inline bool there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static inline mode_t mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_mode & 07777;
}

static inline size_t page_file_bytes(void)
{
	return store_file_header_bytes(ITEM_TOKENS) + ITEM_PAGE_BYTES;
}

static inline void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	if (fd < 0 || pread(fd, &byte, 1, at) != 1)
		abort();
	byte ^= 0x10;
	if (pwrite(fd, &byte, 1, at) != 1 || close(fd) < 0)
		abort();
}

static const char *counted; /* end of the names that count_one counts */
static uint32_t n_counted;

static inline int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t len = strlen(path), s = strlen(counted);

	n_counted += type != FTW_D && len > s && !strcmp(path + len - s, counted);
	return 0;
}

/* Returns the number of files below dir whose names end with `suffix`. */
static inline uint32_t count_files(const char *dir, const char *suffix)
{
	counted = suffix;
	n_counted = 0;
	nftw(dir, count_one, 16, FTW_PHYS);
	return n_counted;
}
