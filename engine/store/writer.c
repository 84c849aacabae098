#include "engine/store/state.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"

/* The most warnings of one kind about single files. Thousands of files may be at fault. */
enum { LINES_MAX = 8 };

/* ---- opening ---- */

/* Returns a time for a file, later than every time that this process gave to a file before, so that the order of use
 * survives a restart. */
static uint64_t next_stamp(struct store *s)
{
	s->stamp = MAX(s->stamp + 1, clock_read_ns(CLOCK_REALTIME));
	return s->stamp;
}

/* Returns the size of the file of an item of this kind. */
static uint64_t file_bytes(const struct store *s, enum tier_kind kind)
{
	return store_file_header_bytes(kind == TIER_PAGE ? s->config.page_tokens : 0) +
	       store_payload(s, kind);
}

struct found {
	struct store_place place;
	uint64_t bytes, used_ns;
};

struct listing {
	struct store *store;
	struct found *v;
	size_t n, cap;
};

static int see_file(void *arg, const struct store_place *p, uint64_t bytes, uint64_t used_ns)
{
	struct listing *l = arg;

	if (atomic_load(&l->store->cancel))
		return -ECANCELED;
	if (!array_grow(l->v, l->cap, l->n + 1))
		return -ENOMEM;
	l->v[l->n++] = (struct found){*p, bytes, used_ns};
	return 0;
}

/* Sorts by last use, the oldest use first. Of items that were used within the same 2^30 ns the deepest comes first,
 * because an item is useless without those before it. */
static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	uint64_t s = x->used_ns >> 30, t = y->used_ns >> 30;

	if (s != t)
		return s > t ? 1 : -1;
	return (x->place.depth < y->place.depth) - (x->place.depth > y->place.depth);
}

static void tell_damaged(struct store *s, const struct found *f, uint64_t *n_damaged)
{
	char path[STORE_DIR_PATH_MAX];

	s->stats.damaged++;
	if (++*n_damaged > LINES_MAX)
		return;
	store_dir_path(&f->place, path);
	log_warning("cache: %s/%s: it has %llu bytes, not %llu; deleted", s->dir.path, path,
		    (unsigned long long)f->bytes,
		    (unsigned long long)file_bytes(s, f->place.item.kind));
}

static void add_found(struct store *s, const struct found *f, uint64_t *n_damaged)
{
	bool owned = store_dir_owned(&s->dir),
	     foreign = f->place.directory != store_dir_own(&s->dir);
	enum tier_kind kind = f->place.item.kind;
	bool whole = f->bytes == file_bytes(s, kind);
	struct store_entry *entry;

	if (!owned && (foreign || !whole || s->forget_found))
		return;
	if (!foreign && (!whole || s->forget_found)) {
		store_doom_file(s, &f->place);
		if (!whole)
			tell_damaged(s, f, n_damaged);
		return;
	}
	entry = foreign ? NULL : store_index_find(&s->index, &f->place.item);
	if (!entry) {
		entry = store_index_add(&s->index, &f->place, foreign);
		if (!entry)
			return;
		if (!foreign)
			store_tell(s, STORE_FOUND, &f->place, NULL);
	}
	if (!entry->on_disk)
		store_index_file(&s->index, entry, store_dir_cost(f->bytes));
}

static void list_files(struct store *s)
{
	struct listing l = {.store = s};
	uint64_t start = clock_now_ns(), damaged = 0;
	int r = store_dir_list(&s->dir, see_file, &l);

	if (r == -ENOMEM)
		log_warning("cache: out of memory for the names of the files on disk");
	store_lock(s);
	next_stamp(s);
	for (size_t i = 0; i < l.n; i++)
		l.v[i].used_ns =
			MIN(l.v[i].used_ns, s->stamp); /* the clock may have been set back */
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
	s->disk = store_dir_owned(&s->dir) ? STORE_DISK_READY : STORE_DISK_READ_ONLY;
	log_info(
		"cache: %llu items of this model on disk, %.1f MiB with those of others; listed in %.0f ms",
		(unsigned long long)s->index.own_files, (double)s->index.disk_bytes / (1 << 20),
		(double)(clock_now_ns() - start) / 1e6);
	store_unlock(s);
}

static void open_disk(struct store *s)
{
	struct cache_identity identity;
	struct err e = {0};
	char *memo = NULL;
	int r;

	if (store_dir_owned(&s->dir) && asprintf(&memo, "%s/weights", s->dir.path) < 0)
		memo = NULL;
	r = s->config.identify(s->config.arg, memo, &s->cancel, &identity, &e);
	free(memo);
	if (r < 0) {
		if (r != -ECANCELED)
			log_warning("cache: nothing is read from or written to disk: %s", e.text);
		store_lock(s);
		s->disk = STORE_DISK_FAILED;
		store_unlock(s);
		return;
	}
	store_lock(s);
	s->dir.identity = identity;
	store_unlock(s);
	list_files(s);
}

/* ---- files ---- */

/* Ends a job, and forgets its entry if that has no block and no file. Called with the lock, returns without it. */
static void end_job(struct store *s, struct store_job *job)
{
	struct store_entry *entry = job->entry;
	struct store_block *b = store_end_job(s, job);

	if (entry)
		store_forget(s, entry, NULL);
	store_unlock(s);
	store_block_put(b);
}

/* Deletes the file that the index evicts first. Called with the lock and returns with it. False: there is no file. */
static bool evict_file(struct store *s)
{
	struct store_entry *entry = store_index_oldest_disk(&s->index);
	struct store_place place;

	if (!entry)
		return false;
	place = store_place_of(s, entry);
	store_index_unfile(&s->index, entry);
	store_forget(s, entry, NULL);
	s->stats.disk_evicted++;
	/* The lock may be released here: only this thread writes files, so the file cannot be written again before it
	 * is deleted. */
	store_unlock(s);
	store_dir_remove(&s->dir, &place);
	store_lock(s);
	return true;
}

static bool over_budget(const struct store *s, uint64_t more)
{
	return s->config.disk_bytes && s->index.disk_bytes + more > s->config.disk_bytes;
}

static void pause_writing(struct store *s, const struct err *why)
{
	if (!s->failing)
		log_warning("cache: %s; writing stops and is tried again every %.0f s", why->text,
			    (double)s->config.retry_ns / 1e9);
	else
		log_debug("cache: %s", why->text);
	s->failing = true;
	s->paused_until = clock_now_ns() + s->config.retry_ns;
}

/* Returns whether an error of writing concerns this one file and no other. */
static bool concerns_one_file(int error)
{
	return error == -EISDIR || error == -ENOTDIR || error == -ENOTEMPTY || error == -ELOOP ||
	       error == -ENAMETOOLONG;
}

static void give_up(struct store *s, const struct err *why)
{
	if (++s->n_given_up <= LINES_MAX)
		log_warning("cache: %s; it is given up%s", why->text,
			    s->n_given_up == LINES_MAX ? ", and so are others without a line" : "");
	else
		log_debug("cache: %s; it is given up", why->text);
}

/* Forgets all files, because the directory was deleted or replaced. */
static void forget_files(struct store *s)
{
	struct store_entry *entry;

	log_warning("cache: %s was deleted or replaced: its files are gone, writing goes on",
		    s->dir.path);
	while ((entry = store_index_oldest_disk(&s->index))) {
		store_index_unfile(&s->index, entry);
		store_forget(s, entry, NULL);
	}
}

/* Notes that a job's file was written; deletes the file if the item was forgotten meanwhile. Called with the lock and
 * returns with it. */
static void note_written(struct store *s, struct store_job *job, uint64_t cost)
{
	const struct store_place place = {store_dir_own(&s->dir), job->header.item,
					  job->header.depth};

	s->index.now_ns = clock_now_ns();
	if (job->entry && !job->entry->on_disk) {
		store_index_file(&s->index, job->entry, cost);
	} else if (!job->entry) { /* the item was forgotten meanwhile */
		store_unlock(s);
		store_dir_remove(&s->dir, &place);
		store_lock(s);
	}
	if (s->failing)
		log_info("cache: %s can be written again", s->dir.path);
	s->failing = false;
	s->stats.written_items++;
	s->stats.written_bytes += job->block->bytes;
}

/* Notes that a job's file could not be written. If the error concerns this file only, the item is given up. Any other
 * error pauses writing, unless writing was cancelled. After the first such error of a job the job is queued again,
 * unless the item was forgotten or the store is closing. Returns whether the job is in `jobs` again. */
static bool note_unwritten(struct store *s, struct store_job *job, int error, const struct err *why)
{
	if (concerns_one_file(error)) {
		give_up(s, why);
	} else {
		if (error != -ECANCELED)
			pause_writing(s, why);
		if (job->entry && !job->failed && !s->closing) {
			/* The job goes to the end of `jobs`, in case the item itself is at fault. */
			job->failed = true;
			list_append(&s->jobs, &job->node);
			return true;
		}
	}
	s->stats.unwritten_items++;
	return false;
}

/* Takes the first job out of `jobs`, writes its file if that is needed and possible, and ends the job. If the write
 * fails, the job may be queued again instead (note_unwritten). Called with the lock, returns without it. */
static void write_job(struct store *s, struct store_job *job)
{
	uint64_t cost = store_dir_cost(file_bytes(s, job->header.item.kind)), stamp;
	struct err why = {0};
	int r, renewed = 0;

	list_remove(&job->node); /* from here on no other thread ends the job */
	while (job->entry && !job->entry->on_disk && over_budget(s, cost))
		if (!evict_file(s))
			break;
	if (!job->entry || job->entry->on_disk || over_budget(s, cost) ||
	    s->disk != STORE_DISK_READY) {
		s->stats.unwritten_items += job->entry && !job->entry->on_disk;
		end_job(s, job);
		return;
	}
	stamp = next_stamp(s);
	store_unlock(s);
	r = store_dir_write(&s->dir, &job->header, job->block->data, stamp, &s->cancel, &why);
	if (r < 0 && r != -ECANCELED && (renewed = store_dir_renew(&s->dir, &why)) > 0)
		r = store_dir_write(&s->dir, &job->header, job->block->data, stamp, &s->cancel,
				    &why);
	store_lock(s);
	if (renewed > 0)
		forget_files(s);
	if (r == 0)
		note_written(s, job, cost);
	else if (note_unwritten(s, job, r, &why)) {
		store_unlock(s);
		return;
	}
	end_job(s, job);
}

/* Returns whether writing pauses after a failure. A store that is closing does not pause. */
static bool is_paused(const struct store *s)
{
	return s->failing && !s->closing && s->disk == STORE_DISK_READY &&
	       clock_now_ns() < s->paused_until;
}

/* Returns the first job; NULL: there is none, or it has to wait for the end of a pause. A job whose item was forgotten
 * does not wait. */
static struct store_job *next_job(struct store *s)
{
	struct store_job *job = store_first_job(s);

	return job && job->entry && is_paused(s) ? NULL : job;
}

/* Deletes one file of `doomed`, or writes or ends one job, or evicts one file, or sets the time of one file. Called
 * with the lock and returns with it. False: there was nothing to do. */
static bool write_something(struct store *s)
{
	struct store_entry *entry;
	struct store_job *job;
	struct store_place place;
	uint64_t stamp;

	if ((entry = list_first(&s->doomed, struct store_entry, disk))) {
		list_remove(&entry->disk);
		place = store_place_of(s, entry);
		store_unlock(s);
		store_dir_remove(&s->dir, &place);
		store_drop_entry(NULL, entry);
		store_lock(s);
		return true;
	}
	if ((job = next_job(s))) {
		write_job(s, job);
		store_lock(s);
		return true;
	}
	if (store_dir_owned(&s->dir) && over_budget(s, 0))
		return evict_file(s);
	if ((entry = store_index_next_touched(&s->index))) {
		place = store_place_of(s, entry);
		stamp = next_stamp(s);
		store_unlock(s);
		store_dir_touch(&s->dir, &place, stamp);
		store_lock(s);
		return true;
	}
	return false;
}

void *store_writer_main(void *arg)
{
	struct store *s = arg;

	pthread_setname_np(pthread_self(), "cache-write");
	if (s->config.dir)
		open_disk(s);
	store_lock(s);
	while (!atomic_load(&s->cancel)) {
		if (write_something(s))
			continue;
		if (s->closing)
			break;
		if (list_empty(&s->jobs)) {
			pthread_cond_wait(&s->writer_work, &s->lock);
		} else {
			const struct timespec until = clock_timespec(s->paused_until);

			pthread_cond_timedwait(&s->writer_work, &s->lock, &until);
		}
	}
	s->writer_ended = true;
	pthread_cond_broadcast(&s->writer_done);
	store_unlock(s);
	return NULL;
}
