/*
 * The store, over a directory that is damaged in every way: what it hands out is right or a miss with a reason.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "engine/store/file.h"
#include "tests/cache_items.h"
#include "tests/scratch.h"
#include "tests/tap.h"

#define SECOND UINT64_C(1000000000)

/* ---- a store to test ---- */

struct fixture {
	struct store *store;
	uint64_t found, gone, got; /* events seen */
	struct store_event last;   /* GONE or GOT */
	atomic_uint wakes;
};

struct identity_arg {
	uint8_t first; /* byte of the identity */
	int result;
	atomic_bool hold; /* wait as long as this is set */
};

static struct identity_arg plain = {.first = 1};

static int identify(void *arg, const char *memo, const atomic_bool *cancel,
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

static void count_wake(void *arg)
{
	struct fixture *f = arg;

	atomic_fetch_add(&f->wakes, 1);
}

static void pause_ms(unsigned ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

static struct store_config config_of(const char *dir)
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

static struct store_stats stats_of(struct fixture *f)
{
	struct store_stats stats;

	store_stats(f->store, &stats);
	return stats;
}

/* Polls everything that is there; the blocks of GOTs but the last are given back. */
static void drain(struct fixture *f)
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

/* Nothing more to write, list or free; at most ten seconds. */
static bool settle(struct fixture *f)
{
	for (int i = 0; i < 10000; i++) {
		struct store_stats s = stats_of(f);

		if (s.disk != STORE_DISK_OPENING && !s.queued_items) {
			drain(f);
			return true;
		}
		pause_ms(1);
	}
	return false;
}

static void open_config(struct fixture *f, struct store_config *c)
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

static void open_dir(struct fixture *f, const char *dir)
{
	struct store_config c = config_of(dir);

	open_config(f, &c);
	if (!settle(f))
		abort();
}

static void close_store(struct fixture *f)
{
	store_close(f->store, 10 * SECOND);
	store_block_put(f->last.block);
	f->store = NULL;
	f->last.block = NULL;
}

/* Asks and waits for the answer, which is in f->last. 0 or the error. */
static int get(struct fixture *f, const struct item *it)
{
	uint64_t got = f->got;
	int r;

	drain(f);
	got = f->got;
	r = store_get(f->store, &it->item, f);
	if (r < 0)
		return r;
	for (int i = 0; f->got == got && i < 10000; i++) {
		drain(f);
		if (f->got == got)
			pause_ms(1);
	}
	return f->last.error;
}

static bool gets_right(struct fixture *f, const struct item *it)
{
	return get(f, it) == 0 && item_right(it, f->last.block) && f->last.tag == f;
}

/* The path of an item's file, below dir. */
static const char *file_of(const char *dir, const struct item *it, uint8_t identity)
{
	static char path[1024];
	char name[STORE_FILE_NAME_MAX];

	store_file_name(&it->item, it->depth, name);
	snprintf(path, sizeof(path), "%s/%02xab000000000000/%.2s/%s", dir, identity, name, name);
	return path;
}

static bool there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_mode & 07777;
}

static size_t page_file_bytes(void)
{
	return store_file_header_bytes(ITEM_TOKENS) + ITEM_PAGE_BYTES;
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	if (fd < 0 || pread(fd, &byte, 1, at) != 1)
		abort();
	byte ^= 0x10;
	if (pwrite(fd, &byte, 1, at) != 1 || close(fd) < 0)
		abort();
}

static uint32_t count_files(const char *dir, const char *suffix)
{
	uint32_t n = 0;
	struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d))) {
		char path[1024];
		size_t len = strlen(entry->d_name), s = strlen(suffix);

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (entry->d_type == DT_DIR)
			n += count_files(path, suffix);
		else
			n += len > s && !strcmp(entry->d_name + len - s, suffix);
	}
	if (d)
		closedir(d);
	return n;
}

/* ---- tests ---- */

static void test_host(void)
{
	struct store_config c = config_of(NULL);
	struct fixture f;
	struct item it[10], state;

	for (uint32_t i = 0; i < 10; i++)
		item_make(&it[i], 1, i, TIER_PAGE);
	item_make(&state, 1, 0, TIER_STATE);
	c.host_bytes = 5 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	is_int(get(&f, &it[0]), -ENOENT, "what nobody put is not known");
	for (int i = 0; i < 10; i++)
		check(item_put(f.store, &it[i]) == 0);
	ok_all("ten pages are taken");
	while (stats_of(&f).host_bytes > c.host_bytes)
		pause_ms(1);
	drain(&f);
	is_int(f.gone, 5, "five go again");
	for (int i = 0; i < 5; i++)
		check(gets_right(&f, &it[i]) && !f.last.from_disk);
	ok_all("those that stay are the beginning of the prefix");
	for (int i = 5; i < 10; i++)
		check(!store_has(f.store, &it[i].item) && get(&f, &it[i]) == -ENOENT);
	ok_all("the others are not known");
	is_int(item_put(f.store, &state), -ENOBUFS, "what exceeds all of it is not taken");
	ok(atomic_load(&f.wakes) > 0, "the poller was woken");
	is_int(stats_of(&f).disk, STORE_DISK_NONE, "there is no disk");
	close_store(&f);
}

static void test_disk(const char *dir)
{
	struct fixture f;
	struct item it[20], state[4];
	uint64_t start;
	char path[1024];

	for (uint32_t i = 0; i < 20; i++)
		item_make(&it[i], 2, i, TIER_PAGE);
	for (uint32_t i = 0; i < 4; i++)
		item_make(&state[i], 2, i * 5, TIER_STATE);
	open_dir(&f, dir);
	is_int(stats_of(&f).disk, STORE_DISK_READY, "a new directory is ready");
	start = clock_now_ns();
	for (int i = 0; i < 20; i++)
		check(item_put(f.store, &it[i]) == 0);
	for (int i = 0; i < 4; i++)
		check(item_put(f.store, &state[i]) == 0);
	ok_all("pages and states are taken");
	ok(settle(&f) && clock_now_ns() - start < SECOND, "they are on disk within a second");
	is_int(count_files(dir, ".kv") + count_files(dir, ".state"), 24, "a file each");
	is_int(mode_of(file_of(dir, &it[0], 1)), 0600, "files are the owner's alone");
	snprintf(path, sizeof(path), "%s", file_of(dir, &it[0], 1));
	*strrchr(path, '/') = 0;
	is_int(mode_of(path), 0700, "so are directories");
	is_int(mode_of(dir), 0700, "all of them");
	for (int i = 0; i < 20; i++)
		check(gets_right(&f, &it[i]) && f.last.from_disk);
	for (int i = 0; i < 4; i++)
		check(gets_right(&f, &state[i]));
	ok_all("all are read back");
	is_int(item_put(f.store, &it[3]), 0, "an item that is there may come again");
	ok(settle(&f), "nothing hangs");
	is_int(stats_of(&f).written_items, 24, "and is not written again");
	close_store(&f);

	open_dir(&f, dir);
	is_int(f.found, 24, "after a restart all are found");
	for (int i = 0; i < 20; i++)
		check(gets_right(&f, &it[i]));
	for (int i = 0; i < 4; i++)
		check(gets_right(&f, &state[i]) && f.last.item.kind == TIER_STATE);
	ok_all("and read");
	is_int(stats_of(&f).disk_items, 24, "the count is right");
	close_store(&f);
}

/* After damage: a miss with a reason, told before; the file is deleted, and the item can be put again. */
static void check_miss(struct fixture *f, const char *dir, const struct item *it, bool vanished)
{
	uint64_t gone = f->gone;
	int r = get(f, it);

	check(r == (vanished ? -ENOENT : -EBADMSG));
	check(f->last.type == STORE_GOT && f->last.why.text[0] && !f->last.block);
	check(f->gone == gone + 1);
	check(!there(file_of(dir, it, 1)));
	check(!store_has(f->store, &it->item));
	check(item_put(f->store, it) == 0 && settle(f) && gets_right(f, it));
}

static void test_damage(const char *dir)
{
	struct store_stats before, after;
	const char *path;
	struct fixture f;
	struct item it, other, state;

	item_make(&it, 3, 1, TIER_PAGE);
	item_make(&other, 3, 2, TIER_PAGE);
	item_make(&state, 3, 1, TIER_STATE);
	open_dir(&f, dir);
	check(item_put(f.store, &it) == 0 && item_put(f.store, &other) == 0 &&
	      item_put(f.store, &state) == 0);
	ok(settle(&f), "three items are written");
	before = stats_of(&f);
	path = file_of(dir, &it, 1);
	for (size_t at = 0; at < page_file_bytes();
	     at += at < store_file_header_bytes(ITEM_TOKENS) ? 1 : 101) {
		flip(path, (off_t)at);
		check_miss(&f, dir, &it, false);
	}
	flip(path, (off_t)page_file_bytes() - 1);
	check_miss(&f, dir, &it, false);
	ok_all("a flipped bit in any region of a file is a miss");
	after = stats_of(&f);
	ok(after.damaged - before.damaged == after.failed_gets - before.failed_gets &&
		   after.damaged > 150,
	   "each is counted");

	for (size_t len = 0; len < page_file_bytes(); len += 61) {
		check(truncate(path, (off_t)len) == 0);
		check_miss(&f, dir, &it, false);
	}
	check(truncate(path, (off_t)page_file_bytes() + 1) == 0);
	check_miss(&f, dir, &it, false);
	ok_all("so is one that is cut short, or too long");

	check(unlink(path) == 0);
	check_miss(&f, dir, &it, true);
	check(unlink(path) == 0 && mkdir(path, 0700) == 0);
	check_miss(&f, dir, &it, false);
	check(unlink(path) == 0 && mkfifo(path, 0600) == 0);
	check_miss(&f, dir, &it, false);
	check(unlink(path) == 0 && symlink("/etc/passwd", path) == 0);
	check_miss(&f, dir, &it, false);
	ok_all("or vanished, a directory, a pipe, a symbolic link");

	{
		char from[1024];

		snprintf(from, sizeof(from), "%s", file_of(dir, &other, 1));
		check(rename(from, file_of(dir, &it, 1)) == 0);
		check_miss(&f, dir, &it, false);
		check(get(&f, &other) == -ENOENT);
		check(strstr(f.last.why.text, "vanished") != NULL);
	}
	ok_all("or another item's");
	ok(gets_right(&f, &state), "the neighbours are well");
	close_store(&f);

	check(truncate(path, 100) == 0);
	open_dir(&f, dir);
	ok(!store_has(f.store, &it.item) && stats_of(&f).damaged == 1,
	   "a short file is not even found at start");
	pause_ms(20);
	ok(!there(path), "and deleted");
	close_store(&f);
}

static void test_foreign(const char *dir)
{
	struct identity_arg other = {.first = 2};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[6];
	char theirs[1024];

	for (uint32_t i = 0; i < 6; i++)
		item_make(&it[i], 400 + i, 0, TIER_PAGE);
	open_dir(&f, dir);
	for (int i = 0; i < 3; i++)
		check(item_put(f.store, &it[i]) == 0);
	ok(settle(&f), "three files of one model");
	close_store(&f);

	pause_ms(1100); /* see test_budget */
	c.arg = &other;
	open_config(&f, &c);
	ok(settle(&f) && f.found == 0, "another model finds nothing");
	ok(stats_of(&f).disk_bytes >= 3 * page_file_bytes(), "but counts what there is");
	check(item_put(f.store, &it[4]) == 0 && item_put(f.store, &it[0]) == 0 && settle(&f));
	ok_all("it writes its own");
	snprintf(theirs, sizeof(theirs), "%s", file_of(dir, &it[0], 1));
	check(rename(theirs, file_of(dir, &it[0], 2)) == 0);
	is_int(get(&f, &it[0]), -EBADMSG, "a file that was moved there is refused");
	ok(strstr(f.last.why.text, "another model"), "by its identity");
	close_store(&f);

	/* Space for two files: what is left of the first model (used before) goes first. */
	c.disk_bytes = 2 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "a smaller budget");
	check(item_put(f.store, &it[5]) == 0 && settle(&f));
	ok(gets_right(&f, &it[4]) && gets_right(&f, &it[5]), "our own are there");
	ok(!there(file_of(dir, &it[1], 1)) && !there(file_of(dir, &it[2], 1)),
	   "the other model's are evicted");
	snprintf(theirs, sizeof(theirs), "%s", file_of(dir, &it[1], 1));
	*strrchr(theirs, '/') = 0;
	ok(!there(theirs), "with their directories");
	close_store(&f);
}

static void test_owners(const char *dir)
{
	char path[1024];
	struct fixture one, two;
	struct item it[3];

	for (uint32_t i = 0; i < 3; i++)
		item_make(&it[i], 5, i, TIER_PAGE);
	open_dir(&one, dir);
	check(item_put(one.store, &it[0]) == 0 && item_put(one.store, &it[1]) == 0 && settle(&one));
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READ_ONLY, "a second daemon only reads");
	is_int(two.found, 2, "it finds what is there");
	ok(gets_right(&two, &it[0]), "and reads it");
	is_int(item_put(two.store, &it[2]), -ENOBUFS, "it writes nothing");
	flip(file_of(dir, &it[0], 1), 300);
	is_int(get(&two, &it[0]), -EBADMSG, "it sees damage");
	ok(there(file_of(dir, &it[0], 1)), "and leaves it to the owner");
	store_touch(two.store, &it[1].item, 1);
	store_clear(two.store);
	pause_ms(20);
	ok(gets_right(&one, &it[1]), "clearing there deletes nothing");
	is_int(get(&one, &it[0]), -EBADMSG, "the owner deletes what is damaged");
	ok(!there(file_of(dir, &it[0], 1)), "at once");
	close_store(&one);
	close_store(&two);
	open_dir(&one, dir);
	is_int(stats_of(&one).disk, STORE_DISK_READY, "the next one owns it again");
	snprintf(path, sizeof(path), "%s/lock", dir);
	check(unlink(path) == 0);
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READ_ONLY, "also when somebody deletes its lock");
	close_store(&two);
	close_store(&one);
	ok_all("two owners");
}

/* What is in one file's place keeps nobody else from writing. */
static void test_in_the_way(const char *dir)
{
	struct store_config c = config_of(dir);
	char path[1024];
	struct fixture f;
	struct item it[3];

	for (uint32_t i = 0; i < 3; i++)
		item_make(&it[i], 78 + i, 0, TIER_PAGE);
	c.retry_ns = 100 * SECOND;
	open_config(&f, &c);
	check(settle(&f) && item_put(f.store, &it[0]) == 0 && settle(&f));
	store_clear(f.store);
	for (int i = 0; i < 10000 && count_files(dir, ".kv"); i++)
		pause_ms(1);
	snprintf(path, sizeof(path), "%s", file_of(dir, &it[0], 1));
	check(mkdir(path, 0700) == 0);
	check(item_put(f.store, &it[0]) == 0 && settle(&f));
	ok(f.gone == 1 && stats_of(&f).disk == STORE_DISK_READY &&
		   stats_of(&f).unwritten_items == 1,
	   "a directory in the file's place: the item is given up, and told");
	check(item_put(f.store, &it[1]) == 0 && settle(&f));
	ok(gets_right(&f, &it[1]) && there(file_of(dir, &it[1], 1)), "the next one is written");
	close_store(&f);
	open_config(&f, &c);
	ok(settle(&f) && f.found == 1, "the listing passes it over");
	close_store(&f);
	ok_all("something in the way");
}

static bool wait_paused(struct fixture *f)
{
	for (int i = 0; i < 10000 && stats_of(f).disk != STORE_DISK_PAUSED; i++)
		pause_ms(1);
	return stats_of(f).disk == STORE_DISK_PAUSED;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* Somebody makes room the short way. */
static void test_deleted(const char *dir)
{
	struct fixture f, two;
	struct item it[4];
	char parent[1024];

	for (uint32_t i = 0; i < 4; i++)
		item_make(&it[i], 81 + i, 0, TIER_PAGE);
	check(mkdir(dir, 0700) == 0);
	snprintf(parent, sizeof(parent), "%s/cache", dir);
	dir = parent;
	open_dir(&f, dir);
	check(item_put(f.store, &it[0]) == 0 && settle(&f));
	check(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 && !there(dir));
	check(item_put(f.store, &it[1]) == 0 && settle(&f));
	ok(there(file_of(dir, &it[1], 1)) && stats_of(&f).disk == STORE_DISK_READY,
	   "a directory that was deleted is made anew");
	ok(f.gone == 1 && !store_has(f.store, &it[0].item), "what was there is gone");
	is_int(get(&f, &it[0]), -ENOENT, "and not to be had");
	ok(gets_right(&f, &it[1]), "what was written since is read");
	is_int(stats_of(&f).disk_bytes, 4096, "and is all that counts");
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READ_ONLY, "it has the same owner");

	check(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
	close_store(&two);
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READY,
	       "made anew by another daemon it is that one's");
	check(item_put(f.store, &it[2]) == 0);
	ok(wait_paused(&f), "the first one writes no more");
	close_store(&two);
	/* The one that waited may have been tried in vain twice, and was given up then. */
	check(item_put(f.store, &it[3]) == 0);
	ok(settle(&f) && there(file_of(dir, &it[3], 1)), "until it is free again");
	close_store(&f);
	ok_all("a directory that is deleted");
}

/* The admin has moved a model's directory to another disk. */
static void test_linked(const char *dir, const char *other)
{
	char path[1024], moved[1024];
	struct fixture f;
	struct item it[2];

	for (uint32_t i = 0; i < 2; i++)
		item_make(&it[i], 77, i, TIER_PAGE);
	open_dir(&f, dir);
	check(item_put(f.store, &it[0]) == 0 && settle(&f));
	close_store(&f);
	snprintf(path, sizeof(path), "%s/01ab000000000000", dir);
	snprintf(moved, sizeof(moved), "%s/moved", other);
	check(mkdir(other, 0700) == 0 && rename(path, moved) == 0 && symlink(moved, path) == 0);
	open_dir(&f, dir);
	is_int(f.found, 1, "what is behind a link is found");
	ok(gets_right(&f, &it[0]), "and read");
	check(item_put(f.store, &it[1]) == 0 && settle(&f));
	close_store(&f);
	is_int(count_files(moved, ".kv"), 2, "and more is written there");
	open_dir(&f, dir);
	is_int(f.found, 2, "which is found as well");
	close_store(&f);
	ok_all("a directory that is a link");
}

static void test_budget(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[30];

	for (uint32_t i = 0; i < 30; i++)
		item_make(&it[i], 600 + i, 0, TIER_PAGE); /* paths that have nothing in common */
	c.disk_bytes = 10 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "room for ten files");
	for (int i = 0; i < 30; i++) {
		check(item_put(f.store, &it[i]) == 0);
		store_touch(f.store, &it[0].item, 1);
		check(settle(&f));
		check(stats_of(&f).disk_bytes <= c.disk_bytes);
	}
	ok_all("it is never exceeded");
	is_int(count_files(dir, ".kv"), 10, "ten files are there");
	is_int(f.gone, 20, "twenty went, and this was told");
	ok(store_has(f.store, &it[0].item) && store_has(f.store, &it[29].item) &&
		   !store_has(f.store, &it[20].item),
	   "the ones that were used last stay");
	close_store(&f);

	/* Order survives a restart: times have a resolution of a second there. */
	pause_ms(1100);
	open_config(&f, &c);
	check(settle(&f));
	store_touch(f.store, &it[22].item, 1);
	check(gets_right(&f, &it[21]));
	close_store(&f);
	c.disk_bytes = 2 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "a restart with room for two");
	for (int i = 0; i < 1000 && stats_of(&f).disk_bytes > c.disk_bytes; i++)
		pause_ms(1);
	ok(gets_right(&f, &it[21]) && gets_right(&f, &it[22]), "keeps those used last before it");
	is_int(count_files(dir, ".kv"), 2, "and nothing else");
	close_store(&f);

	c.disk_bytes = 4095;
	open_config(&f, &c);
	check(settle(&f) && item_put(f.store, &it[1]) == 0 && settle(&f));
	ok(!store_has(f.store, &it[1].item), "what exceeds all of it is not kept");
	close_store(&f);
	ok_all("the budget");
}

/* A prefix loses its end first, on disk too. */
static void test_order(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[20], extra;

	for (uint32_t i = 0; i < 20; i++)
		item_make(&it[i], 7, i, TIER_PAGE);
	item_make(&extra, 8, 0, TIER_PAGE);
	c.disk_bytes = 20 * 4096;
	open_config(&f, &c);
	check(settle(&f));
	for (int i = 0; i < 20; i++)
		check(item_put(f.store, &it[i]) == 0);
	check(settle(&f) && item_put(f.store, &extra) == 0 && settle(&f));
	ok(!store_has(f.store, &it[19].item) && store_has(f.store, &it[0].item),
	   "the last page goes first");
	close_store(&f);
	c.disk_bytes = 10 * 4096;
	open_config(&f, &c);
	check(settle(&f));
	for (int i = 0; i < 1000 && stats_of(&f).disk_bytes > c.disk_bytes; i++)
		pause_ms(1);
	for (int i = 0; i < 8; i++)
		check(store_has(f.store, &it[i].item));
	for (int i = 11; i < 20; i++)
		check(!store_has(f.store, &it[i].item));
	ok_all("after a restart as well");
	close_store(&f);
}

static void test_full(const char *dir)
{
	struct rlimit old, small;
	struct fixture f;
	struct item it[3], state;

	for (uint32_t i = 0; i < 3; i++)
		item_make(&it[i], 9, i, TIER_PAGE);
	item_make(&state, 9, 2, TIER_STATE);
	open_dir(&f, dir);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 1000;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	check(item_put(f.store, &it[0]) == 0);
	ok(wait_paused(&f), "a write that fails stops writing");
	is_int(item_put(f.store, &it[1]), 0, "the next is taken all the same");
	ok(gets_right(&f, &it[0]) && gets_right(&f, &it[1]), "both are there");
	is_int(count_files(dir, ".kv") + count_files(dir, ".partial"), 0, "nothing is written");
	setrlimit(RLIMIT_FSIZE, &old);
	ok(settle(&f) && stats_of(&f).disk == STORE_DISK_READY, "later it is tried again");
	ok(there(file_of(dir, &it[0], 1)) && there(file_of(dir, &it[1], 1)),
	   "and both are written");

	small.rlim_cur = page_file_bytes();
	setrlimit(RLIMIT_FSIZE, &small);
	check(item_put(f.store, &state) == 0 && item_put(f.store, &it[2]) == 0);
	ok(settle(&f) && there(file_of(dir, &it[2], 1)), "what cannot be written is passed over");
	is_int(get(&f, &state), -ENOENT, "and given up when it failed twice");
	is_int(f.gone, 1, "which is told");
	setrlimit(RLIMIT_FSIZE, &old);
	close_store(&f);
	ok_all("a limit of file sizes");
}

/* What exceeds the queue is kept in host memory until it is written, or waits where it is. */
static void test_queue(const char *dir)
{
	struct identity_arg slow = {.first = 1, .hold = true};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[10];

	for (uint32_t i = 0; i < 10; i++)
		item_make(&it[i], 33, i, TIER_PAGE);
	c.arg = &slow;
	c.queue_bytes = ITEM_STATE_BYTES + 2 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	ok(store_ready(f.store, 2 * ITEM_PAGE_BYTES), "a state after two pages has room");
	ok(!store_ready(f.store, 3 * ITEM_PAGE_BYTES), "after three it has not");
	for (int i = 0; i < 3; i++)
		check(item_put(f.store, &it[i]) == 0);
	ok(!store_ready(f.store, 0), "nor when they have come");
	drain(&f);
	atomic_store(&f.wakes, 0);
	atomic_store(&slow.hold, false);
	for (int i = 0; i < 10000 && !atomic_load(&f.wakes); i++)
		pause_ms(1);
	ok(atomic_load(&f.wakes) > 0, "who was told to wait is woken when the disk takes them");
	ok(settle(&f) && store_ready(f.store, 0), "then there is room");
	close_store(&f);

	atomic_store(&slow.hold, true);
	c.dir = scratch_path("queue-host");
	c.queue_bytes = 2 * ITEM_PAGE_BYTES;
	c.host_bytes = ITEM_STATE_BYTES; /* six pages */
	open_config(&f, &c);
	for (int i = 0; i < 10; i++)
		check(item_put(f.store, &it[i]) == 0 && store_ready(f.store, 0));
	while (stats_of(&f).host_bytes > c.host_bytes)
		pause_ms(1);
	drain(&f);
	ok(stats_of(&f).queued_items == 8 && f.gone == 2,
	   "six wait in host memory, two beside it; what exceeds both is gone: %llu, %llu",
	   (unsigned long long)stats_of(&f).queued_items, (unsigned long long)f.gone);
	atomic_store(&slow.hold, false);
	ok(settle(&f), "the disk is there");
	is_int(count_files(c.dir, ".kv"), 8, "all that waited is written");
	is_int(stats_of(&f).queued_bytes, 0, "nothing waits");
	for (int i = 0; i < 10; i++)
		check(gets_right(&f, &it[i]) || i >= 6);
	close_store(&f);
	ok_all("a queue that is full");
}

/* A disk of 64 KB of our own, where we may mount one. */
static void test_full_disk(const char *dir, bool mounted)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it;
	uint32_t n = 0;

	if (!mounted) {
		printf("# no file system can be mounted here: a full disk is not tested\n");
		return;
	}
	c.host_bytes = 1 << 20;
	open_config(&f, &c);
	check(settle(&f));
	while (n < 100 && stats_of(&f).disk == STORE_DISK_READY) {
		item_make(&it, 1000 + n++, 0, TIER_PAGE);
		check(item_put(f.store, &it) == 0);
		while (stats_of(&f).disk == STORE_DISK_READY && stats_of(&f).queued_items)
			pause_ms(1);
	}
	ok(n > 4 && n < 100, "a full disk stops writing");
	is_int(count_files(dir, ".partial"), 0, "nothing half is left there");
	ok(gets_right(&f, &it), "host memory goes on");
	store_clear(f.store);
	pause_ms(250);
	check(item_put(f.store, &it) == 0 && settle(&f));
	is_int(stats_of(&f).disk, STORE_DISK_READY,
	       "when there is space again it is written again");
	close_store(&f);

	check(mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
	open_dir(&f, dir);
	is_int(stats_of(&f).disk, STORE_DISK_READ_ONLY, "a read-only file system is read only");
	ok(gets_right(&f, &it), "and read");
	close_store(&f);
	check(mount(NULL, dir, NULL, MS_REMOUNT, NULL) == 0);
	ok_all("a disk of its own");
}

static void write_for_ever(const char *dir, uint32_t round)
{
	struct fixture f;
	struct item it;

	open_dir(&f, dir);
	for (uint32_t i = 0;; i++) {
		item_make(&it, 10000 + round * 1000 + i % 1000, i % 3,
			  i % 4 ? TIER_PAGE : TIER_STATE);
		if (item_put(f.store, &it) < 0)
			pause_ms(1);
		drain(&f);
	}
}

static void test_killed(const char *dir, uint32_t rounds)
{
	struct fixture f;
	uint64_t before = 0, found = 0;		/* files */
	uint32_t fruitful = 0, found_pages = 0; /* rounds that wrote some; pages among the files */
	struct item it;

	for (uint32_t round = 0; round < rounds; round++) {
		pid_t child = fork();

		if (child == 0)
			write_for_ever(dir, round);
		/* Somewhere after the first file: how long it takes to get there is the machine's matter. */
		for (int i = 0; i < 5000 && count_files(dir, ".kv") == found_pages; i++)
			pause_ms(1);
		pause_ms(round * 37 % 60);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		open_dir(&f, dir);
		check(stats_of(&f).disk == STORE_DISK_READY);
		check(stats_of(&f).damaged == 0 && count_files(dir, ".partial") == 0);
		before = found;
		found = f.found;
		fruitful += found > before;
		found_pages = count_files(dir, ".kv");
		for (uint32_t i = 0; i < 200; i++) {
			item_make(&it, 10000 + round * 1000 + i, i % 3,
				  i % 4 ? TIER_PAGE : TIER_STATE);
			if (store_has(f.store, &it.item))
				check(gets_right(&f, &it));
		}
		close_store(&f);
	}
	ok_all("a writer that is killed leaves whole files and nothing else, %u times", rounds);
	is_int(fruitful, rounds, "and every time some were written");
}

static void test_many(const char *dir)
{
	enum { N = 100000 };
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it;
	uint64_t start;
	char path[1024];
	double seconds;

	/* Right names and lengths, no content: nobody looks at it. */
	item_make(&it, 1, 0, TIER_PAGE);
	snprintf(path, sizeof(path), "%s/01ab000000000000", dir);
	check(mkdir(path, 0700) == 0);
	for (int i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "%s/01ab000000000000/%02x", dir, i);
		check(mkdir(path, 0700) == 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		int fd;

		it.item.key.v[0] = i * UINT64_C(0x9e3779b97f4a7c15);
		it.item.key.v[1] = i;
		fd = open(file_of(dir, &it, 1), O_WRONLY | O_CREAT, 0600);
		if (fd < 0 || ftruncate(fd, (off_t)page_file_bytes()) < 0 || close(fd) < 0)
			abort();
	}
	start = clock_now_ns();
	open_config(&f, &c);
	ok(stats_of(&f).disk == STORE_DISK_OPENING,
	   "opening does not wait for a hundred thousand files");
	check(settle(&f));
	seconds = (double)(clock_now_ns() - start) / 1e9;
	is_int(f.found, N, "all are found");
	ok(seconds < 10, "in %.2f s", seconds);
	is_int(get(&f, &it), -EBADMSG, "one without content is a miss");
	close_store(&f);
	ok_all("many files");
}

static void test_clear(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[50];

	for (uint32_t i = 0; i < 50; i++)
		item_make(&it[i], 20, i, TIER_PAGE);
	c.host_bytes = 20 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	check(settle(&f));
	for (int i = 0; i < 50; i++)
		check(item_put(f.store, &it[i]) == 0);
	store_clear(f.store); /* some written, some not, one under way */
	check(settle(&f));
	for (int i = 0; i < 50; i++)
		check(!store_has(f.store, &it[i].item));
	is_int(f.gone, 0, "clearing tells nothing");
	for (int i = 0; i < 1000 && count_files(dir, ".kv"); i++)
		pause_ms(1);
	is_int(count_files(dir, ".kv"), 0, "all files are deleted");
	is_int(stats_of(&f).disk_bytes, 0, "nothing is counted");
	is_int(stats_of(&f).host_bytes, 0, "in memory neither");
	check(item_put(f.store, &it[7]) == 0 && settle(&f) && gets_right(&f, &it[7]));
	ok_all("and all begins anew");
	close_store(&f);
	open_dir(&f, dir);
	is_int(f.found, 1, "with what was put afterwards");
	close_store(&f);
}

static void test_opening(const char *dir)
{
	struct identity_arg slow = {.first = 1, .hold = true}, bad = {.first = 1, .result = -EIO};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[3];

	for (uint32_t i = 0; i < 3; i++)
		item_make(&it[i], 30, i, TIER_PAGE);
	c.arg = &slow;
	c.queue_bytes = 2 * ITEM_PAGE_BYTES;
	open_config(&f, &c);
	is_int(stats_of(&f).disk, STORE_DISK_OPENING, "the identity takes its time");
	check(item_put(f.store, &it[0]) == 0 && item_put(f.store, &it[1]) == 0);
	ok_all("what is put waits");
	ok(gets_right(&f, &it[1]), "and can be got");
	is_int(item_put(f.store, &it[2]), -ENOBUFS, "as far as the queue goes");
	atomic_store(&slow.hold, false);
	ok(settle(&f) && there(file_of(dir, &it[0], 1)) && there(file_of(dir, &it[1], 1)),
	   "then it is written");
	close_store(&f);

	atomic_store(&slow.hold, true);
	open_config(&f, &c);
	close_store(&f);
	ok(true, "closing does not wait for it");

	c.arg = &bad;
	open_config(&f, &c);
	ok(settle(&f) && stats_of(&f).disk == STORE_DISK_FAILED,
	   "without identity there is no disk");
	is_int(item_put(f.store, &it[0]), -ENOBUFS, "and nothing is taken");
	close_store(&f);
}

static void test_close(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it;

	open_dir(&f, dir);
	for (uint32_t i = 0; i < 100; i++) {
		item_make(&it, 40 + i, 0, TIER_STATE);
		check(item_put(f.store, &it) == 0);
	}
	close_store(&f);
	open_dir(&f, dir);
	is_int(f.found, 100, "what was queued is written at the end");
	/* Gets whose answers nobody fetches, and items that nobody will read. */
	for (uint32_t i = 0; i < 100; i++) {
		item_make(&it, 40 + i, 0, TIER_STATE);
		check(store_get(f.store, &it.item, NULL) == 0);
	}
	close_store(&f);
	c.host_bytes = 1 << 20;
	open_config(&f, &c);
	store_close(f.store, 0);
	ok_all("closing in the middle of everything");
}

static void test_strangers(const char *dir)
{
	struct fixture f;
	struct item it;
	char path[2048];
	struct store_config c = config_of("/dev/null/x");
	struct err e = {0};

	item_make(&it, 50, 0, TIER_PAGE);
	open_dir(&f, dir);
	check(item_put(f.store, &it) == 0 && settle(&f));
	close_store(&f);
	snprintf(path, sizeof(path), "%s.partial", file_of(dir, &it, 1));
	close(open(path, O_WRONLY | O_CREAT, 0600));
	snprintf(path, sizeof(path), "%s/notes.txt", dir);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	open_dir(&f, dir);
	is_int(count_files(dir, ".partial"), 0, "leftovers are deleted");
	ok(there(path), "what is not ours stays");
	is_int(f.found, 1, "and is not found");
	close_store(&f);
	ok(store_open(&c, &f.store, &e) < 0 && e.text[0],
	   "a directory that cannot be is an error: %s", e.text);
	ok_all("strangers");
}

/* Puts, gets and evictions at once, from the thread that does so in the daemon. */
static void test_busy(const char *dir)
{
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[64];
	uint32_t random = 1;
	uint64_t out = 0, wrong = 0;
	struct store_event ev;

	for (uint32_t i = 0; i < 64; i++)
		item_make(&it[i], 60 + i / 8, i % 8, i % 3 ? TIER_PAGE : TIER_STATE);
	c.host_bytes = 12 * ITEM_STATE_BYTES;
	c.disk_bytes = 20 * 24576;
	c.queue_bytes = 8 * ITEM_STATE_BYTES;
	open_config(&f, &c);
	for (uint32_t step = 0; step < 20000; step++) {
		struct item *one;

		random = random * 1664525 + 1013904223;
		one = &it[random >> 16 & 63];
		if (random >> 24 & 1)
			out += store_get(f.store, &one->item, one) == 0;
		else if (random >> 25 & 1)
			(void)!item_put(f.store, one);
		else
			store_touch(f.store, &one->item, 1);
		if (step % 5000 == 4999)
			store_clear(f.store);
		while (store_poll(f.store, &ev))
			if (ev.type == STORE_GOT) {
				out--;
				wrong += ev.error ? ev.error != -ENOENT
						  : !item_right(ev.tag, ev.block);
				store_block_put(ev.block);
			}
	}
	for (int i = 0; out && i < 10000; i++) {
		while (store_poll(f.store, &ev))
			if (ev.type == STORE_GOT) {
				out--;
				store_block_put(ev.block);
			}
		pause_ms(1);
	}
	is_int(out, 0, "every get of many is answered");
	is_int(wrong, 0, "with the right bytes, or that it went");
	is_int(stats_of(&f).damaged, 0, "nothing looks damaged");
	close_store(&f);
}

int main(void)
{
	bool mounted;
	char disk[512], many[512];

	scratch_make();
	snprintf(disk, sizeof(disk), "%s", scratch_path("mounted"));
	snprintf(many, sizeof(many), "%s", scratch_path("many"));
	if (mkdir(disk, 0700) < 0 || mkdir(many, 0700) < 0)
		abort();
	/* Mounts that end with this process. The second one is for speed only. */
	mounted = unshare(CLONE_NEWNS) == 0 &&
		  mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		  mount("cache", disk, "tmpfs", 0, "size=64k,mode=0700") == 0 &&
		  mount("cache", many, "tmpfs", 0, "size=512m,nr_inodes=200000,mode=0700") == 0;
	test_host();
	test_killed(scratch_path("killed"),
		    getenv("CACHE_KILLS") ? (uint32_t)strtoul(getenv("CACHE_KILLS"), NULL, 10)
					  : 10);
	test_disk(scratch_path("disk"));
	test_damage(scratch_path("damage"));
	test_foreign(scratch_path("foreign"));
	test_owners(scratch_path("owners"));
	test_in_the_way(scratch_path("in-the-way"));
	test_deleted(scratch_path("deleted"));
	test_linked(scratch_path("linked"), scratch_path("linked-other"));
	test_budget(scratch_path("budget"));
	test_order(scratch_path("order"));
	test_full(scratch_path("limit"));
	test_queue(scratch_path("queue"));
	test_full_disk(disk, mounted);
	test_many(many);
	test_clear(scratch_path("clear"));
	test_opening(scratch_path("opening"));
	test_close(scratch_path("close"));
	test_strangers(scratch_path("strangers"));
	test_busy(scratch_path("busy"));
	if (mounted && (umount(disk) < 0 || umount(many) < 0))
		abort();
	scratch_remove();
	return done();
}
