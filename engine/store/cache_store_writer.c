#include "engine/store/cache_store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

/* Between two attempts to write, unless told otherwise. */
#define RETRY_NS 60000000000u

/* Of a kind that may be about every file. */
enum { LINES_MAX = 8 };

/* ---- opening ---- */

/* In the files' time: later than any before, so that the order of use survives. */
static uint64_t next_stamp(struct cache_store *s)
{
	struct timespec t;
	uint64_t now;

	clock_gettime(CLOCK_REALTIME, &t);
	now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	s->stamp = MAX(s->stamp + 1, now);
	return s->stamp;
}

/* Of a whole file. */
static uint64_t file_bytes(const struct cache_store *s, enum tier_kind kind)
{
	return cache_file_header_bytes(kind == TIER_PAGE ? s->config.page_tokens : 0) +
	       store_payload(s, kind);
}

struct found {
	struct cache_place place;
	uint64_t bytes, used_ns;
};

struct listing {
	struct cache_store *store;
	struct found *v;
	size_t n, cap;
};

static int see_file(void *arg, const struct cache_place *p, uint64_t bytes, uint64_t used_ns)
{
	struct listing *l = arg;

	if (atomic_load(&l->store->cancel))
		return -ECANCELED;
	if (l->n == l->cap) {
		size_t cap = MAX(l->cap * 2, (size_t)1024);
		struct found *v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = (struct found){*p, bytes, used_ns};
	return 0;
}

/* Least recently used first; of what was used together (within about a second) the deepest first, as it is of no use
 * without the rest. */
static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	uint64_t s = x->used_ns >> 30, t = y->used_ns >> 30;

	if (s != t)
		return s > t ? 1 : -1;
	return (x->place.depth < y->place.depth) - (x->place.depth > y->place.depth);
}

static void tell_damaged(struct cache_store *s, const struct found *f, uint64_t *n_damaged)
{
	char path[CACHE_DIR_PATH_MAX];

	s->stats.damaged++;
	if (++*n_damaged > LINES_MAX)
		return;
	cache_dir_path(&f->place, path);
	log_warning("cache: %s/%s: it has %llu bytes, not %llu; deleted", s->dir.path, path,
		    (unsigned long long)f->bytes,
		    (unsigned long long)file_bytes(s, f->place.item.kind));
}

static void add_found(struct cache_store *s, const struct found *f, uint64_t *n_damaged)
{
	bool owned = cache_dir_owned(&s->dir),
	     foreign = f->place.directory != cache_dir_own(&s->dir);
	enum tier_kind kind = f->place.item.kind;
	bool whole = f->bytes == file_bytes(s, kind);
	struct cache_entry *entry;

	if (!owned && (foreign || !whole || s->forget_found))
		return;
	if (!foreign && (!whole || s->forget_found)) {
		entry = cache_index_add(&s->index, &f->place, true);
		if (entry)
			store_doom(s, entry);
		if (!whole)
			tell_damaged(s, f, n_damaged);
		return;
	}
	entry = foreign ? NULL : cache_index_find(&s->index, &f->place.item);
	if (!entry) {
		entry = cache_index_add(&s->index, &f->place, foreign);
		if (!entry)
			return;
		if (!foreign)
			store_tell(s, CACHE_FOUND, &f->place, NULL);
	}
	if (!entry->on_disk)
		cache_index_file(&s->index, entry, cache_dir_cost(f->bytes));
}

static void list_files(struct cache_store *s)
{
	struct listing l = {.store = s};
	uint64_t start = clock_now_ns(), damaged = 0;
	int r = cache_dir_list(&s->dir, see_file, &l);

	if (r == -ENOMEM)
		log_warning("cache: out of memory for the names of what is on disk");
	store_lock(s);
	next_stamp(s);
	for (size_t i = 0; i < l.n; i++)
		l.v[i].used_ns = MIN(l.v[i].used_ns, s->stamp); /* a clock may have been wrong */
	store_unlock(s);
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_use);
	for (size_t i = 0; i < l.n; i++) {
		store_lock(s);
		add_found(s, &l.v[i], &damaged);
		store_unlock(s);
	}
	free(l.v);
	store_lock(s);
	if (damaged > LINES_MAX)
		log_warning("cache: %llu more files do not have their size; deleted",
			    (unsigned long long)(damaged - LINES_MAX));
	s->disk = cache_dir_owned(&s->dir) ? CACHE_DISK_READY : CACHE_DISK_READ_ONLY;
	log_info(
		"cache: %llu items of this model on disk, %.1f MiB with those of others; listed in %.0f ms",
		(unsigned long long)s->index.own_files, (double)s->index.disk_bytes / (1 << 20),
		(double)(clock_now_ns() - start) / 1e6);
	store_unlock(s);
}

static void open_disk(struct cache_store *s)
{
	struct cache_identity identity;
	struct err e = {0};
	char *memo = NULL;
	int r;

	if (cache_dir_owned(&s->dir) && asprintf(&memo, "%s/weights", s->dir.path) < 0)
		memo = NULL;
	r = s->config.identify(s->config.arg, memo, &s->cancel, &identity, &e);
	free(memo);
	if (r < 0) {
		if (r != -ECANCELED)
			log_warning("cache: nothing is read from or written to disk: %s", e.text);
		store_lock(s);
		s->disk = CACHE_DISK_FAILED;
		store_unlock(s);
		return;
	}
	store_lock(s);
	s->dir.identity = identity;
	store_unlock(s);
	list_files(s);
}

/* ---- files ---- */

/* The job is over; the lock is held, and is not afterwards. */
static void end_job(struct cache_store *s, struct cache_job *job)
{
	struct cache_entry *entry = job->entry;
	struct cache_block *b = store_end_job(s, job);

	if (entry)
		store_forget(s, entry, NULL);
	store_unlock(s);
	cache_block_put(b);
}

/* The file that was used least recently goes; the lock is given up meanwhile. False: there is none. */
static bool evict_file(struct cache_store *s)
{
	struct cache_entry *entry = cache_index_oldest_disk(&s->index);
	struct cache_place place;

	if (!entry)
		return false;
	place = store_place(s, entry);
	cache_index_unfile(&s->index, entry);
	store_forget(s, entry, NULL);
	s->stats.disk_evicted++;
	/* It cannot be written again before: that is this thread's work. */
	store_unlock(s);
	cache_dir_remove(&s->dir, &place);
	store_lock(s);
	return true;
}

static bool over_budget(const struct cache_store *s, uint64_t more)
{
	return s->config.disk_bytes && s->index.disk_bytes + more > s->config.disk_bytes;
}

static void pause_writing(struct cache_store *s, const struct err *why)
{
	uint64_t retry = s->config.retry_ns ? s->config.retry_ns : RETRY_NS;

	if (!s->failing)
		log_warning("cache: %s; writing stops and is tried again every %.0f s", why->text,
			    (double)retry / 1e9);
	else
		log_debug("cache: %s", why->text);
	s->failing = true;
	s->paused_until = clock_now_ns() + retry;
}

/* What is in the way of one file and of no other one. */
static bool is_items_fault(int error)
{
	return error == -EISDIR || error == -ENOTDIR || error == -ENOTEMPTY || error == -ELOOP ||
	       error == -ENAMETOOLONG;
}

static void give_up(struct cache_store *s, const struct err *why)
{
	if (++s->n_given_up <= LINES_MAX)
		log_warning("cache: %s; it is given up%s", why->text,
			    s->n_given_up == LINES_MAX ? ", and so are others without a line" : "");
	else
		log_debug("cache: %s; it is given up", why->text);
}

/* The directory is another one now. */
static void forget_files(struct cache_store *s)
{
	struct cache_entry *entry;

	log_warning(
		"cache: %s was deleted or replaced: what was there is forgotten, writing goes on",
		s->dir.path);
	while ((entry = cache_index_oldest_disk(&s->index))) {
		cache_index_unfile(&s->index, entry);
		store_forget(s, entry, NULL);
	}
}

/* The first job. Called with the lock, ends without. */
static void write_job(struct cache_store *s, struct cache_job *job)
{
	uint64_t cost = cache_dir_cost(file_bytes(s, job->header.item.kind)), stamp;
	const struct cache_place place = {cache_dir_own(&s->dir), job->header.item,
					  job->header.depth};
	struct err why = {0};
	int r, renewed = 0;

	ring_remove(&job->node); /* nobody else may end it now */
	while (job->entry && !job->entry->on_disk && over_budget(s, cost))
		if (!evict_file(s))
			break;
	if (!job->entry || job->entry->on_disk || over_budget(s, cost) ||
	    s->disk != CACHE_DISK_READY) {
		s->stats.unwritten_items += job->entry && !job->entry->on_disk;
		end_job(s, job);
		return;
	}
	stamp = next_stamp(s);
	store_unlock(s);
	r = cache_dir_write(&s->dir, &job->header, job->block->data, stamp, &s->cancel, &why);
	if (r < 0 && r != -ECANCELED && (renewed = cache_dir_renew(&s->dir, &why)) > 0)
		r = cache_dir_write(&s->dir, &job->header, job->block->data, stamp, &s->cancel,
				    &why);
	store_lock(s);
	if (renewed > 0)
		forget_files(s);
	if (r == 0) {
		s->index.now_ns = clock_now_ns();
		if (job->entry && !job->entry->on_disk) {
			cache_index_file(&s->index, job->entry, cost);
		} else if (!job->entry) {
			/* Cleared meanwhile. */
			store_unlock(s);
			cache_dir_remove(&s->dir, &place);
			store_lock(s);
		}
		if (s->failing)
			log_info("cache: %s can be written again", s->dir.path);
		s->failing = false;
		s->stats.written_items++;
		s->stats.written_bytes += job->block->bytes;
	} else if (is_items_fault(r)) {
		give_up(s, &why);
		s->stats.unwritten_items++;
	} else {
		if (r != -ECANCELED)
			pause_writing(s, &why);
		if (job->entry && !job->failed && !s->closing) {
			/* Behind the others, should it be the item's fault. */
			job->failed = true;
			ring_append(&s->jobs, &job->node);
			store_unlock(s);
			return;
		}
		s->stats.unwritten_items++;
	}
	end_job(s, job);
}

/* Whether writing has stopped for now. At the end it is tried once more, if there is time. */
static bool is_paused(const struct cache_store *s)
{
	return s->failing && !s->closing && s->disk == CACHE_DISK_READY &&
	       clock_now_ns() < s->paused_until;
}

/* The next one to be dealt with, or NULL. What nobody wants any more does not wait for the disk. */
static struct cache_job *next_job(struct cache_store *s)
{
	struct cache_job *job = store_first_job(s);

	return job && job->entry && is_paused(s) ? NULL : job;
}

/* One piece of work; the lock is held before and after. False: there is nothing to do. */
static bool write_something(struct cache_store *s)
{
	struct cache_entry *entry;
	struct cache_job *job;
	struct cache_place place;
	uint64_t stamp;

	if (!ring_empty(&s->doomed)) {
		entry = container_of(s->doomed.next, struct cache_entry, disk);
		ring_remove(&entry->disk);
		place = store_place(s, entry);
		store_unlock(s);
		cache_dir_remove(&s->dir, &place);
		store_drop_entry(NULL, entry);
		store_lock(s);
		return true;
	}
	if ((job = next_job(s))) {
		write_job(s, job);
		store_lock(s);
		return true;
	}
	if (cache_dir_owned(&s->dir) && over_budget(s, 0))
		return evict_file(s);
	if ((entry = cache_index_next_touched(&s->index))) {
		place = store_place(s, entry);
		stamp = next_stamp(s);
		store_unlock(s);
		cache_dir_touch(&s->dir, &place, stamp);
		store_lock(s);
		return true;
	}
	return false;
}

void *store_writer_main(void *arg)
{
	struct cache_store *s = arg;

	pthread_setname_np(pthread_self(), "cache-write");
	if (s->config.dir)
		open_disk(s);
	store_lock(s);
	while (!atomic_load(&s->cancel)) {
		if (write_something(s))
			continue;
		if (s->closing)
			break;
		if (ring_empty(&s->jobs)) {
			pthread_cond_wait(&s->writer_work, &s->lock);
		} else {
			const struct timespec until = store_timespec(s->paused_until);

			pthread_cond_timedwait(&s->writer_work, &s->lock, &until);
		}
	}
	s->writer_ended = true;
	pthread_cond_broadcast(&s->writer_done);
	store_unlock(s);
	return NULL;
}
