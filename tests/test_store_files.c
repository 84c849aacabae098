/* The store over a directory that is damaged, shared, moved, deleted, full, or left by a killed writer: it hands out
 * right bytes, or a miss with a reason. */
#include <dlfcn.h>
#include <gnutls/crypto.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mix.h"
#include "tests/scratch.h"
#include "tests/store_fixture.h"
#include "tests/tap.h"

/* Checks a get of an item whose file is damaged or has vanished: STORE_GONE comes, then an error with a reason. The
 * file is deleted, and the item can be put again. */
static void check_miss(struct fixture *f, const char *dir, const struct item *it, bool vanished)
{
	uint64_t gone = f->gone;
	int r = get(f, it);

	check(r == (vanished ? -ENOENT : -EBADMSG));
	check(f->last.type == STORE_GOT && f->last.why.text[0] && !f->last.block);
	check(f->gone == gone + 1);
	wait_while(there(file_of(dir, it, 1)));
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
	flip(path, 8);
	check(get(&f, &it) == -EBADMSG && strstr(f.last.why.text, "it has version"));
	check(puts_one(&f, &it));
	ok_all("a file of another version is refused by its version");
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

	after = stats_of(&f);
	check(unlink(path) == 0);
	check_miss(&f, dir, &it, true);
	check(stats_of(&f).damaged == after.damaged);
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

static atomic_bool hold, held; /* hold: the reader thread is to wait; held: it has waited */

/* Replaces the function of GnuTLS that the reader thread calls for the bytes of a file. The reader thread waits here
 * while `hold` is set. */
int gnutls_hash_fast(gnutls_digest_algorithm_t algorithm, const void *data, size_t len, void *ret)
{
	static int (*real)(gnutls_digest_algorithm_t, const void *, size_t, void *);
	char thread[16] = "";

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "gnutls_hash_fast");
	pthread_getname_np(pthread_self(), thread, sizeof(thread));
	while (!strcmp(thread, "cache-read") && atomic_load(&hold)) {
		atomic_store(&held, true);
		pause_ms(1);
	}
	return real(algorithm, data, len, ret);
}

/* While the reader checks a damaged file, the item is forgotten and written anew under the same name. */
static void test_replaced(const char *dir)
{
	struct fixture f;
	struct item it;

	item_make(&it, 4, 0, TIER_PAGE);
	open_dir(&f, dir);
	check(puts_one(&f, &it));
	flip(file_of(dir, &it, 1), (off_t)page_file_bytes() - 1);
	atomic_store(&hold, true);
	check(store_get(f.store, &it.item, &f) == 0);
	wait_while(!atomic_load(&held));
	store_clear(f.store);
	check(puts_one(&f, &it));
	atomic_store(&hold, false);
	wait_while((drain(&f), !f.got));
	is_int(f.last.error, -EBADMSG, "the damage is found");
	pause_ms(20);
	ok(there(file_of(dir, &it, 1)) && store_has(f.store, &it.item),
	   "the file that was written meanwhile stays");
	ok(gets_right(&f, &it), "and is read");
	is_int(stats_of(&f).damaged, 0, "nor does it count as damaged");
	close_store(&f);
}

static int give_away(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return lchown(path, 65534, 65534);
}

/* A file that this process may not read. A test that runs as root is another user meanwhile. */
static void test_unreadable(const char *dir)
{
	bool root = geteuid() == 0;
	struct fixture f;
	struct item it;

	item_make(&it, 5, 0, TIER_PAGE);
	open_dir(&f, dir);
	check(puts_one(&f, &it) && chmod(file_of(dir, &it, 1), 0) == 0);
	check(!root || (nftw(dir, give_away, 16, FTW_PHYS) == 0 && seteuid(65534) == 0));
	is_int(get(&f, &it), -EACCES, "a file that may not be read is a miss");
	ok(f.gone == 1 && puts_one(&f, &it) && gets_right(&f, &it), "and is written anew");
	check(!root || seteuid(0) == 0);
	close_store(&f);
	ok_all("a file of mode 0");
}

/* A clock that was wrong has given a file a time before 1970. */
static void test_long_ago(const char *dir)
{
	const struct timespec then[2] = {{.tv_sec = -86400}, {.tv_sec = -86400}};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[2];

	make_paths(it, 2, 60);
	open_dir(&f, dir);
	check(puts_one(&f, &it[0]) && puts_one(&f, &it[1]));
	close_store(&f);
	check(utimensat(AT_FDCWD, file_of(dir, &it[1], 1), then, 0) == 0);
	c.disk_bytes = 4096;
	open_settled(&f, &c);
	wait_while(stats_of(&f).disk_items > 1);
	ok(store_has(f.store, &it[0].item) && !store_has(f.store, &it[1].item),
	   "a file from before 1970 is the oldest");
	close_store(&f);
	ok_all("a time before 1970");
}

static void test_foreign(const char *dir)
{
	struct identity_arg other = {.first = 2};
	struct store_config c = config_of(dir);
	struct fixture f;
	struct item it[6];
	char theirs[1024];

	make_paths(it, 6, 400);
	open_dir(&f, dir);
	put_all(&f, it, 3);
	ok(settle(&f), "three files of one model");
	close_store(&f);

	/* at the start files are sorted by their times in units of 2^30 ns (by_use in writer.c) */
	pause_ms(1100);
	c.arg = &other;
	open_config(&f, &c);
	ok(settle(&f) && f.found == 0, "another model finds nothing");
	ok(stats_of(&f).disk_bytes >= 3 * page_file_bytes(), "but counts what there is");
	check(item_put(f.store, &it[4]) == 0 && puts_one(&f, &it[0]));
	ok_all("it writes its own");
	snprintf(theirs, sizeof(theirs), "%s", file_of(dir, &it[0], 1));
	check(rename(theirs, file_of(dir, &it[0], 2)) == 0);
	is_int(get(&f, &it[0]), -EBADMSG, "a file that was moved there is refused");
	ok(strstr(f.last.why.text, "another model"), "by its identity");
	close_store(&f);

	/* Space for two files: those of the first model, which are older, go first. */
	c.disk_bytes = 2 * 4096;
	open_config(&f, &c);
	ok(settle(&f), "a smaller budget");
	check(puts_one(&f, &it[5]));
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

	make_path(it, 3, 5);
	open_dir(&one, dir);
	check(item_put(one.store, &it[0]) == 0 && puts_one(&one, &it[1]));
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
	wait_while(there(file_of(dir, &it[0], 1)));
	ok(!there(file_of(dir, &it[0], 1)), "soon");
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

/* Something else in the place of one file does not keep other files from being written. */
static void test_in_the_way(const char *dir)
{
	struct store_config c = config_of(dir);
	char path[1024];
	struct fixture f;
	struct item it[3];

	make_paths(it, 3, 78);
	c.retry_ns = 100 * SECOND;
	open_config(&f, &c);
	check(settle(&f) && puts_one(&f, &it[0]));
	store_clear(f.store);
	wait_while(count_files(dir, ".kv"));
	snprintf(path, sizeof(path), "%s", file_of(dir, &it[0], 1));
	check(mkdir(path, 0700) == 0);
	check(puts_one(&f, &it[0]));
	ok(f.gone == 1 && stats_of(&f).disk == STORE_DISK_READY &&
		   stats_of(&f).unwritten_items == 1,
	   "a directory in the file's place: the item is given up, and told");
	check(puts_one(&f, &it[1]));
	ok(gets_right(&f, &it[1]) && there(file_of(dir, &it[1], 1)), "the next one is written");
	store_clear(f.store);
	wait_while(count_files(dir, ".kv"));
	snprintf(path, sizeof(path), "%s.partial", file_of(dir, &it[1], 1));
	check(mkfifo(path, 0600) == 0);
	ok(puts_one(&f, &it[1]) && gets_right(&f, &it[1]),
	   "a FIFO in place of the temporary file is not waited for");
	close_store(&f);
	open_config(&f, &c);
	ok(settle(&f) && f.found == 1, "the listing passes it over");
	close_store(&f);
	ok_all("something in the way");
}

static bool wait_paused(struct fixture *f)
{
	wait_while(stats_of(f).disk != STORE_DISK_PAUSED);
	return stats_of(f).disk == STORE_DISK_PAUSED;
}

/* Somebody deletes the whole directory to make room. */
static void test_deleted(const char *dir)
{
	struct fixture f, two;
	struct item it[4];
	char parent[1024];

	make_paths(it, 4, 81);
	check(mkdir(dir, 0700) == 0);
	snprintf(parent, sizeof(parent), "%s/cache", dir);
	dir = parent;
	open_dir(&f, dir);
	check(puts_one(&f, &it[0]));
	check(scratch_remove_tree(dir) == 0 && !there(dir));
	check(puts_one(&f, &it[1]));
	ok(there(file_of(dir, &it[1], 1)) && stats_of(&f).disk == STORE_DISK_READY,
	   "a directory that was deleted is made anew");
	ok(f.gone == 1 && !store_has(f.store, &it[0].item), "what was there is gone");
	is_int(get(&f, &it[0]), -ENOENT, "and not to be had");
	ok(gets_right(&f, &it[1]), "what was written since is read");
	is_int(stats_of(&f).disk_bytes, 4096, "and is all that counts");
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READ_ONLY, "it has the same owner");

	check(scratch_remove_tree(dir) == 0);
	close_store(&two);
	open_dir(&two, dir);
	is_int(stats_of(&two).disk, STORE_DISK_READY,
	       "made anew by another daemon it is that one's");
	check(item_put(f.store, &it[2]) == 0);
	ok(wait_paused(&f), "the first one writes no more");
	close_store(&two);
	/* it[2] was given up if writing it failed twice meanwhile. */
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

	make_path(it, 2, 77);
	open_dir(&f, dir);
	check(puts_one(&f, &it[0]));
	close_store(&f);
	snprintf(path, sizeof(path), "%s/01ab000000000000", dir);
	snprintf(moved, sizeof(moved), "%s/moved", other);
	check(mkdir(other, 0700) == 0 && rename(path, moved) == 0 && symlink(moved, path) == 0);
	open_dir(&f, dir);
	is_int(f.found, 1, "what is behind a link is found");
	ok(gets_right(&f, &it[0]), "and read");
	check(puts_one(&f, &it[1]));
	close_store(&f);
	is_int(count_files(moved, ".kv"), 2, "and more is written there");
	open_dir(&f, dir);
	is_int(f.found, 2, "which is found as well");
	close_store(&f);
	ok_all("a directory that is a link");
}

static void test_full(const char *dir)
{
	struct rlimit old, small;
	struct fixture f;
	struct item it[3], state;

	make_path(it, 3, 9);
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

/* A disk of 64 KiB; mounted: this program was allowed to mount it. */
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
	open_settled(&f, &c);
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
	check(puts_one(&f, &it));
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
	uint64_t before = 0, found = 0; /* files found before this round, and after it */
	/* fruitful: rounds that wrote files; found_pages: pages among the files found */
	uint32_t fruitful = 0, found_pages = 0;
	struct item it;

	for (uint32_t round = 0; round < rounds; round++) {
		pid_t child = fork();

		if (child == 0)
			write_for_ever(dir, round);
		/* The writer is killed some time after its first new page. How long the first one takes depends on the
		 * machine. */
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

	/* Files with the right names and lengths, but no content: opening a store does not read it. */
	item_make(&it, 1, 0, TIER_PAGE);
	snprintf(path, sizeof(path), "%s/01ab000000000000", dir);
	check(mkdir(path, 0700) == 0);
	for (int i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "%s/01ab000000000000/%02x", dir, i);
		check(mkdir(path, 0700) == 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		int fd;

		it.item.key.v[0] = i * MIX_GOLDEN;
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

static void test_strangers(const char *dir)
{
	struct fixture f;
	struct item it;
	char path[2048];
	struct store_config c = config_of("/dev/null/x");
	struct err e = {0};

	item_make(&it, 50, 0, TIER_PAGE);
	open_dir(&f, dir);
	check(puts_one(&f, &it));
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

int main(void)
{
	bool mounted;
	char disk[512], many[512];

	snprintf(disk, sizeof(disk), "%s", scratch_path("mounted"));
	snprintf(many, sizeof(many), "%s", scratch_path("many"));
	if (mkdir(disk, 0700) < 0 || mkdir(many, 0700) < 0)
		abort();
	/* Mounts that end with this process. The second one is for speed only. */
	mounted = unshare(CLONE_NEWNS) == 0 &&
		  mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		  mount("cache", disk, "tmpfs", 0, "size=64k,mode=0700") == 0 &&
		  mount("cache", many, "tmpfs", 0, "size=512m,nr_inodes=200000,mode=0700") == 0;
	test_killed(scratch_path("killed"),
		    getenv("CACHE_KILLS") ? (uint32_t)strtoul(getenv("CACHE_KILLS"), NULL, 10)
					  : 10);
	test_damage(scratch_path("damage"));
	test_replaced(scratch_path("replaced"));
	test_unreadable(scratch_path("unreadable"));
	test_long_ago(scratch_path("long-ago"));
	test_foreign(scratch_path("foreign"));
	test_owners(scratch_path("owners"));
	test_in_the_way(scratch_path("in-the-way"));
	test_deleted(scratch_path("deleted"));
	test_linked(scratch_path("linked"), scratch_path("linked-other"));
	test_full(scratch_path("limit"));
	test_full_disk(disk, mounted);
	test_many(many);
	test_strangers(scratch_path("strangers"));
	if (mounted && (umount(disk) < 0 || umount(many) < 0))
		abort();
	return done();
}
