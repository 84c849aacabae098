/*
 * The store's threads and what passes between them. One lock guards index, queues and events; nobody holds it
 * while calling the system or freeing a block.
 *
 * The writer opens the disk tier (identity, listing), writes jobs in their order, evicts, deletes and tells files
 * that they were used. The reader answers gets from files, and frees host memory that is over its budget, so that
 * this goes on while the writer hashes weights.
 */
#include "engine/cache_store.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/cache_dir.h"
#include "engine/cache_index.h"

#define RETRY_NS 60000000000u

enum { BLOCK_ALIGNMENT = 4096 };

/* One item that waits to be written. */
struct cache_job {
	struct cache_job *next;
	struct cache_entry *entry;	 /* NULL: nobody wants it any more */
	struct cache_block *block;	 /* a reference */
	struct cache_file_header header; /* tokens point behind this struct */
};

struct event {
	struct event *next;
	struct cache_event e;
};

struct list {
	struct event *head, **tail;
};

struct cache_store {
	struct cache_store_config config;
	struct cache_dir dir; /* fixed once entries on disk exist, but for its files */
	pthread_t writer, reader;
	atomic_bool cancel; /* the writer shall stop at once */

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t writer_work, reader_work, writer_done;
	struct cache_index index;
	struct cache_job *jobs, **jobs_tail;
	struct list requests; /* gets for the reader */
	struct list events;
	struct ring doomed; /* entries (by .disk) out of the table whose files the writer deletes */
	struct ring trash;  /* entries (by .host) out of the table that the reader frees */
	enum cache_store_disk disk;
	uint64_t stamp;	       /* the last use, in the files' time */
	uint64_t paused_until; /* monotonic; writing failed */
	bool failing;	       /* the last write failed */
	bool forget_found;     /* cleared while the disk tier was being opened */
	bool closing, writer_ended;
	bool news;			/* an event since the lock was taken */
	struct cache_store_stats stats; /* the counts; the rest is filled in when asked */
};

/* ---- blocks ---- */

struct cache_block *cache_block_new(size_t bytes)
{
	struct cache_block *b = malloc(sizeof(*b));

	if (!b)
		return NULL;
	if (posix_memalign(&b->data, BLOCK_ALIGNMENT, MAX(bytes, (size_t)1))) {
		free(b);
		return NULL;
	}
	b->bytes = bytes;
	atomic_init(&b->refs, 1);
	return b;
}

struct cache_block *cache_block_ref(struct cache_block *b)
{
	atomic_fetch_add(&b->refs, 1);
	return b;
}

void cache_block_put(struct cache_block *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) > 1)
		return;
	free(b->data);
	free(b);
}

/* ---- lock and events ---- */

static void lock(struct cache_store *s)
{
	pthread_mutex_lock(&s->lock);
}

static void unlock(struct cache_store *s)
{
	bool news = s->news;

	s->news = false;
	pthread_mutex_unlock(&s->lock);
	if (news && s->config.wake)
		s->config.wake(s->config.wake_arg);
}

static void list_init(struct list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static void list_push(struct list *l, struct event *ev)
{
	ev->next = NULL;
	*l->tail = ev;
	l->tail = &ev->next;
}

static struct event *list_pop(struct list *l)
{
	struct event *ev = l->head;

	if (ev) {
		l->head = ev->next;
		if (!l->head)
			l->tail = &l->head;
	}
	return ev;
}

static void push_event(struct cache_store *s, struct event *ev)
{
	list_push(&s->events, ev);
	s->news = true;
}

/* FOUND or GONE. Without memory it is not told: whoever asks for the item learns it then. */
static void tell(struct cache_store *s, enum cache_event_type type, const struct cache_place *p,
		 const struct err *why)
{
	struct event *ev = malloc(sizeof(*ev));

	if (!ev)
		return;
	ev->e = (struct cache_event){.type = type, .item = p->item, .depth = p->depth};
	if (why)
		ev->e.why = *why;
	push_event(s, ev);
}

/* ---- entries; under the lock ---- */

static uint64_t payload_of(const struct cache_store *s, enum tier_kind kind)
{
	return kind == TIER_PAGE ? s->config.page_bytes : s->config.state_bytes;
}

static uint64_t cost_of(const struct cache_store *s, enum tier_kind kind)
{
	return cache_dir_cost(kind == TIER_PAGE ? s->config.page_tokens : 0, payload_of(s, kind));
}

/* Frees an entry that nothing holds any more, and says so. */
static void forget(struct cache_store *s, struct cache_entry *entry, const struct err *why)
{
	if (entry->block || entry->job || entry->on_disk)
		return;
	if (!entry->foreign)
		tell(s, CACHE_GONE, &entry->place, why);
	cache_index_remove(&s->index, entry);
	free(entry);
}

/* An entry that was made before the identity was known does not know its directory. */
static struct cache_place place_of(const struct cache_store *s, const struct cache_entry *entry)
{
	struct cache_place p = entry->place;

	if (!entry->foreign)
		p.directory = cache_dir_own(&s->dir);
	return p;
}

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

static void touch(struct cache_store *s, struct cache_entry *entry)
{
	s->index.now_ns = clock_now_ns();
	cache_index_touch(&s->index, entry);
	if (!cache_dir_owned(&s->dir))
		ring_remove(&entry->touch);
	else if (!ring_empty(&s->index.touch))
		pthread_cond_signal(&s->writer_work);
}

static bool may_queue(const struct cache_store *s, uint64_t bytes)
{
	uint64_t limit = s->config.queue_bytes ? s->config.queue_bytes : CACHE_STORE_QUEUE_BYTES;

	return !s->closing && (s->disk == CACHE_DISK_OPENING || s->disk == CACHE_DISK_READY) &&
	       cache_dir_owned(&s->dir) && s->stats.queued_bytes + bytes <= limit &&
	       (!s->failing || clock_now_ns() >= s->paused_until);
}

static void drop_entry(void *arg, struct cache_entry *entry)
{
	cache_block_put(entry->block);
	free(entry);
}

/* ---- the writer: opening ---- */

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

/* A file that cannot be what its name says, or that nobody wants: to be deleted. */
static void doom(struct cache_store *s, struct cache_entry *entry)
{
	ring_append(&s->doomed, &entry->disk);
	pthread_cond_signal(&s->writer_work);
}

static void add_found(struct cache_store *s, const struct found *f)
{
	bool owned = cache_dir_owned(&s->dir),
	     foreign = f->place.directory != cache_dir_own(&s->dir);
	enum tier_kind kind = f->place.item.kind;
	uint32_t n_tokens = kind == TIER_PAGE ? s->config.page_tokens : 0;
	bool whole = f->bytes == cache_file_header_bytes(n_tokens) + payload_of(s, kind);
	struct cache_entry *entry;

	if (!owned && (foreign || !whole || s->forget_found))
		return;
	if (!foreign && (!whole || s->forget_found)) {
		entry = cache_index_add(&s->index, &f->place, true);
		if (entry)
			doom(s, entry);
		s->stats.damaged += !whole;
		if (!whole)
			log_warning("cache: a file of %llu bytes is damaged (%s); deleted",
				    (unsigned long long)f->bytes,
				    kind == TIER_PAGE ? "page" : "state");
		return;
	}
	entry = foreign ? NULL : cache_index_find(&s->index, &f->place.item);
	if (!entry) {
		entry = cache_index_add(&s->index, &f->place, foreign);
		if (!entry)
			return;
		if (!foreign)
			tell(s, CACHE_FOUND, &f->place, NULL);
	}
	if (!entry->on_disk)
		cache_index_file(&s->index, entry, ROUND_UP(f->bytes, (uint64_t)BLOCK_ALIGNMENT));
}

static void list_files(struct cache_store *s)
{
	struct listing l = {.store = s};
	uint64_t start = clock_now_ns();
	int r = cache_dir_list(&s->dir, see_file, &l);

	if (r == -ENOMEM)
		log_warning("cache: out of memory for the names of what is on disk");
	lock(s);
	next_stamp(s);
	for (size_t i = 0; i < l.n; i++)
		l.v[i].used_ns = MIN(l.v[i].used_ns, s->stamp); /* a clock may have been wrong */
	unlock(s);
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_use);
	for (size_t i = 0; i < l.n; i++) {
		lock(s);
		add_found(s, &l.v[i]);
		unlock(s);
	}
	free(l.v);
	lock(s);
	s->disk = cache_dir_owned(&s->dir) ? CACHE_DISK_READY : CACHE_DISK_READ_ONLY;
	log_info(
		"cache: %llu items of this model on disk, %.1f MiB with those of others; listed in %.0f ms",
		(unsigned long long)s->index.own_files, (double)s->index.disk_bytes / (1 << 20),
		(double)(clock_now_ns() - start) / 1e6);
	unlock(s);
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
		lock(s);
		s->disk = CACHE_DISK_FAILED;
		unlock(s);
		return;
	}
	lock(s);
	s->dir.identity = identity;
	unlock(s);
	list_files(s);
}

/* ---- the writer: files ---- */

static struct cache_job *pop_job(struct cache_store *s)
{
	struct cache_job *job = s->jobs;

	if (!job)
		return NULL;
	s->jobs = job->next;
	if (!s->jobs)
		s->jobs_tail = &s->jobs;
	return job;
}

/* The job is over; the lock is held, and is not afterwards. */
static void end_job(struct cache_store *s, struct cache_job *job)
{
	struct cache_entry *entry = job->entry;

	s->stats.queued_items--;
	s->stats.queued_bytes -= job->block->bytes;
	if (entry) {
		entry->job = NULL;
		forget(s, entry, NULL);
	}
	unlock(s);
	cache_block_put(job->block);
	free(job);
}

/* The file that was used least recently goes; the lock is given up meanwhile. False: there is none. */
static bool evict_file(struct cache_store *s)
{
	struct cache_entry *entry = cache_index_oldest_disk(&s->index);
	struct cache_place place;

	if (!entry)
		return false;
	place = place_of(s, entry);
	cache_index_unfile(&s->index, entry);
	forget(s, entry, NULL);
	s->stats.disk_evicted++;
	/* It cannot be written again before: that is this thread's work. */
	unlock(s);
	cache_dir_remove(&s->dir, &place);
	lock(s);
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

/* Called with the lock, ends without. */
static void write_job(struct cache_store *s, struct cache_job *job)
{
	uint64_t cost = cost_of(s, job->header.item.kind), stamp;
	const struct cache_place place = {cache_dir_own(&s->dir), job->header.item,
					  job->header.depth};
	struct err why = {0};
	int r;

	while (job->entry && !job->entry->on_disk && over_budget(s, cost))
		if (!evict_file(s))
			break;
	if (!job->entry || job->entry->on_disk || over_budget(s, cost) ||
	    s->disk != CACHE_DISK_READY || (s->failing && clock_now_ns() < s->paused_until)) {
		s->stats.unwritten_items += job->entry && !job->entry->on_disk;
		end_job(s, job);
		return;
	}
	stamp = next_stamp(s);
	unlock(s);
	r = cache_dir_write(&s->dir, &job->header, job->block->data, stamp, &s->cancel, &why);
	lock(s);
	if (r == 0) {
		s->index.now_ns = clock_now_ns();
		if (job->entry && !job->entry->on_disk) {
			cache_index_file(&s->index, job->entry, cost);
		} else if (!job->entry) {
			/* Cleared meanwhile. */
			unlock(s);
			cache_dir_remove(&s->dir, &place);
			lock(s);
		}
		if (s->failing)
			log_info("cache: %s can be written again", s->dir.path);
		s->failing = false;
		s->stats.written_items++;
		s->stats.written_bytes += job->block->bytes;
	} else {
		s->stats.unwritten_items++;
		if (r != -ECANCELED)
			pause_writing(s, &why);
	}
	end_job(s, job);
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
		place = place_of(s, entry);
		unlock(s);
		cache_dir_remove(&s->dir, &place);
		drop_entry(NULL, entry);
		lock(s);
		return true;
	}
	if ((job = pop_job(s))) {
		write_job(s, job);
		lock(s);
		return true;
	}
	if (cache_dir_owned(&s->dir) && over_budget(s, 0))
		return evict_file(s);
	if ((entry = cache_index_next_touched(&s->index))) {
		place = place_of(s, entry);
		stamp = next_stamp(s);
		unlock(s);
		cache_dir_touch(&s->dir, &place, stamp);
		lock(s);
		return true;
	}
	return false;
}

static void *writer_main(void *arg)
{
	struct cache_store *s = arg;

	pthread_setname_np(pthread_self(), "cache-write");
	if (s->config.dir)
		open_disk(s);
	lock(s);
	while (!atomic_load(&s->cancel)) {
		if (write_something(s))
			continue;
		if (s->closing)
			break;
		pthread_cond_wait(&s->writer_work, &s->lock);
	}
	s->writer_ended = true;
	pthread_cond_broadcast(&s->writer_done);
	unlock(s);
	return NULL;
}

/* ---- the reader ---- */

/* A file that will not do: it is deleted and forgotten, unless it went meanwhile and what is there now is another one.
 * Under the lock again afterwards. */
static void drop_file(struct cache_store *s, const struct cache_place *place, uint64_t serial,
		      int error, struct err *why)
{
	struct cache_entry *entry;

	/* Before it is forgotten: the writer makes no new one as long as this one is known. */
	if (cache_dir_owned(&s->dir) && error != -ENOENT)
		cache_dir_remove(&s->dir, place);
	lock(s);
	entry = cache_index_find(&s->index, &place->item);
	if (entry && entry->on_disk && entry->serial == serial) {
		cache_index_unfile(&s->index, entry);
		s->stats.damaged++;
		forget(s, entry, why);
	}
}

/* What says that the file, not the machine, is at fault. */
static bool is_damage(int error)
{
	return error == -EBADMSG || error == -ENOENT || error == -EIO || error == -EISDIR ||
	       error == -ENOTDIR;
}

/* Reads the file of an entry. The lock is held, is given up meanwhile, and held again. */
static void read_entry(struct cache_store *s, struct event *ev, const struct cache_place *place,
		       uint64_t serial)
{
	uint64_t bytes = payload_of(s, place->item.kind);
	struct cache_entry *entry;
	struct cache_block *b;
	int r;

	unlock(s);
	b = cache_block_new(bytes);
	r = b ? cache_dir_read(&s->dir, &place->item, place->depth, s->config.page_tokens, b->data,
			       bytes, &ev->e.why)
	      : err_set(&ev->e.why, ENOMEM, "out of memory for %llu bytes of the cache",
			(unsigned long long)bytes);
	ev->e.error = r;
	if (r < 0) {
		cache_block_put(b);
		if (is_damage(r))
			drop_file(s, place, serial, r, &ev->e.why);
		else
			lock(s);
		return;
	}
	lock(s);
	ev->e.block = b;
	ev->e.from_disk = true;
	s->stats.disk_hits++;
	entry = cache_index_find(&s->index, &place->item);
	if (!entry)
		return;
	if (s->config.host_bytes && !entry->block)
		cache_index_keep(&s->index, entry, b);
	touch(s, entry);
}

/* From memory at once, if it is there. */
static bool answer_from_memory(struct cache_store *s, struct event *ev, struct cache_entry *entry)
{
	struct cache_block *b = entry->block ? entry->block : entry->job ? entry->job->block : NULL;

	if (!b)
		return false;
	ev->e.block = cache_block_ref(b);
	s->stats.host_hits++;
	touch(s, entry);
	return true;
}

static void answer(struct cache_store *s, struct event *ev)
{
	struct cache_entry *entry = cache_index_find(&s->index, &ev->e.item);

	if (!entry) {
		ev->e.error = err_set(&ev->e.why, ENOENT, "it was evicted before it could be read");
	} else if (!answer_from_memory(s, ev, entry)) {
		const struct cache_place place = place_of(s, entry);

		read_entry(s, ev, &place, entry->serial);
	}
	s->stats.failed_gets += ev->e.error < 0;
	push_event(s, ev);
}

/* One piece of work; the lock is held before and after. False: there is nothing to do. */
static bool read_something(struct cache_store *s)
{
	struct cache_entry *entry;
	struct cache_block *b;
	struct event *ev;

	if (!ring_empty(&s->trash)) {
		entry = container_of(s->trash.next, struct cache_entry, host);
		ring_remove(&entry->host);
		unlock(s);
		drop_entry(NULL, entry);
		lock(s);
		return true;
	}
	if (s->index.host_bytes > s->config.host_bytes) {
		entry = cache_index_oldest_host(&s->index);
		b = cache_index_unkeep(&s->index, entry);
		s->stats.host_evicted++;
		forget(s, entry, NULL);
		unlock(s);
		cache_block_put(b);
		lock(s);
		return true;
	}
	ev = list_pop(&s->requests);
	if (!ev)
		return false;
	answer(s, ev);
	unlock(s); /* tells */
	lock(s);
	return true;
}

static void *reader_main(void *arg)
{
	struct cache_store *s = arg;

	pthread_setname_np(pthread_self(), "cache-read");
	lock(s);
	while (!s->closing)
		if (!read_something(s))
			pthread_cond_wait(&s->reader_work, &s->lock);
	unlock(s);
	return NULL;
}

/* ---- open and close ---- */

static void free_list(struct list *l)
{
	struct event *ev;

	while ((ev = list_pop(l))) {
		cache_block_put(ev->e.block);
		free(ev);
	}
}

static void free_ring_disk(struct ring *r)
{
	while (!ring_empty(r)) {
		struct cache_entry *entry = container_of(r->next, struct cache_entry, disk);

		ring_remove(&entry->disk);
		drop_entry(NULL, entry);
	}
}

static void free_store(struct cache_store *s)
{
	struct cache_job *job;

	while ((job = pop_job(s))) {
		cache_block_put(job->block);
		free(job);
	}
	free_list(&s->requests);
	free_list(&s->events);
	free_ring_disk(&s->doomed);
	while (!ring_empty(&s->trash)) {
		struct cache_entry *entry = container_of(s->trash.next, struct cache_entry, host);

		ring_remove(&entry->host);
		drop_entry(NULL, entry);
	}
	cache_index_release(&s->index, drop_entry, NULL);
	cache_dir_close(&s->dir);
	pthread_cond_destroy(&s->writer_work);
	pthread_cond_destroy(&s->reader_work);
	pthread_cond_destroy(&s->writer_done);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct cache_store *new_store(const struct cache_store_config *c)
{
	struct cache_store *s = calloc(1, sizeof(*s));
	uint64_t bytes = MAX(c->host_bytes, c->disk_bytes ? c->disk_bytes : UINT64_C(1) << 37);
	pthread_condattr_t attr;

	if (!s || cache_index_init(&s->index, bytes / MAX(c->page_bytes, UINT64_C(1))) < 0) {
		free(s);
		return NULL;
	}
	s->config = *c;
	s->dir.fd = s->dir.lock_fd = -1;
	s->jobs_tail = &s->jobs;
	list_init(&s->requests);
	list_init(&s->events);
	ring_init(&s->doomed);
	ring_init(&s->trash);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->writer_work, NULL);
	pthread_cond_init(&s->reader_work, NULL);
	pthread_cond_init(&s->writer_done, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

int cache_store_open(const struct cache_store_config *c, struct cache_store **ret, struct err *e)
{
	struct cache_store *s = new_store(c);
	struct err why = {0};
	int r = 0;

	if (!s)
		return err_set(e, ENOMEM, "out of memory");
	if (c->dir) {
		r = cache_dir_open(c->dir, &s->dir, &why, e);
		s->disk = CACHE_DISK_OPENING;
	}
	if (r == 0 && why.code)
		log_warning("cache: %s: what is there is read, nothing is written", why.text);
	if (r == 0 && (r = -pthread_create(&s->writer, NULL, writer_main, s)) < 0)
		err_set(e, -r, "cannot start a thread of the cache: %s", strerror(-r));
	if (r < 0) {
		free_store(s);
		return r;
	}
	r = -pthread_create(&s->reader, NULL, reader_main, s);
	if (r < 0) {
		lock(s);
		s->closing = true;
		atomic_store(&s->cancel, true);
		pthread_cond_signal(&s->writer_work);
		unlock(s);
		pthread_join(s->writer, NULL);
		free_store(s);
		return err_set(e, -r, "cannot start a thread of the cache: %s", strerror(-r));
	}
	*ret = s;
	return 0;
}

void cache_store_close(struct cache_store *s, uint64_t timeout_ns)
{
	uint64_t end = clock_now_ns() + timeout_ns;
	const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
				       .tv_nsec = (long)(end % 1000000000u)};

	if (!s)
		return;
	lock(s);
	s->closing = true;
	pthread_cond_signal(&s->writer_work);
	pthread_cond_signal(&s->reader_work);
	/* What cannot be of use is not waited for. */
	if (s->disk == CACHE_DISK_OPENING && !s->jobs)
		atomic_store(&s->cancel, true);
	while (!s->writer_ended && pthread_cond_timedwait(&s->writer_done, &s->lock, &until) == 0)
		;
	if (!s->writer_ended && s->stats.queued_items)
		log_warning("cache: %llu items could not be written in time",
			    (unsigned long long)s->stats.queued_items);
	atomic_store(&s->cancel, true);
	pthread_cond_signal(&s->writer_work);
	s->news = false;
	unlock(s);
	pthread_join(s->writer, NULL);
	pthread_join(s->reader, NULL);
	free_store(s);
}

/* ---- items ---- */

static struct cache_job *new_job(struct cache_store *s, const struct cache_put *p,
				 struct cache_entry *entry)
{
	uint32_t n = p->item.kind == TIER_PAGE ? s->config.page_tokens : 0;
	struct cache_job *job = malloc(sizeof(*job) + n * sizeof(*p->tokens));

	if (!job)
		return NULL;
	*job = (struct cache_job){
		.entry = entry,
		.block = cache_block_ref(p->block),
		.header = {.item = p->item,
			   .parent = p->parent,
			   .depth = p->depth,
			   .n_tokens = n,
			   .tokens = (int32_t *)(void *)(job + 1),
			   .payload_bytes = p->block->bytes},
	};
	if (n)
		memcpy(job->header.tokens, p->tokens, n * sizeof(*p->tokens));
	return job;
}

static void queue_job(struct cache_store *s, struct cache_job *job)
{
	job->entry->job = job;
	job->next = NULL;
	*s->jobs_tail = job;
	s->jobs_tail = &job->next;
	s->stats.queued_items++;
	s->stats.queued_bytes += job->block->bytes;
	pthread_cond_signal(&s->writer_work);
}

/* Under the lock. */
static int put(struct cache_store *s, const struct cache_put *p)
{
	const struct cache_place place = {cache_dir_own(&s->dir), p->item, p->depth};
	struct cache_entry *entry = cache_index_find(&s->index, &p->item);
	bool known = entry, keep = p->block->bytes <= s->config.host_bytes;
	struct cache_job *job = NULL;

	s->index.now_ns = clock_now_ns();
	if (!entry)
		entry = cache_index_add(&s->index, &place, false);
	if (!entry)
		return -ENOMEM;
	entry->parent = p->parent;
	entry->has_parent = p->depth > s->config.page_tokens;
	if (known)
		touch(s, entry);
	if (!entry->block && keep)
		cache_index_keep(&s->index, entry, p->block);
	if (s->index.host_bytes > s->config.host_bytes)
		pthread_cond_signal(&s->reader_work);
	if (!entry->job && !entry->on_disk && may_queue(s, p->block->bytes))
		job = new_job(s, p, entry);
	if (job)
		queue_job(s, job);
	else if (cache_dir_owned(&s->dir) && !entry->job && !entry->on_disk)
		s->stats.unwritten_items++;
	if (entry->block || entry->job || entry->on_disk)
		return 0;
	cache_index_remove(&s->index, entry);
	free(entry);
	return -ENOBUFS;
}

int cache_store_put(struct cache_store *s, const struct cache_put *p)
{
	int r;

	assert(p->block->bytes == payload_of(s, p->item.kind));
	lock(s);
	r = put(s, p);
	unlock(s);
	cache_block_put(p->block);
	return r;
}

bool cache_store_has(struct cache_store *s, const struct tier_item *item)
{
	bool has;

	lock(s);
	has = cache_index_find(&s->index, item);
	unlock(s);
	return has;
}

int cache_store_get(struct cache_store *s, const struct tier_item *item, void *tag)
{
	struct event *ev = malloc(sizeof(*ev));
	struct cache_entry *entry;

	if (!ev)
		return -ENOMEM;
	lock(s);
	entry = cache_index_find(&s->index, item);
	if (!entry) {
		unlock(s);
		free(ev);
		return -ENOENT;
	}
	ev->e = (struct cache_event){.type = CACHE_GOT,
				     .item = entry->place.item,
				     .depth = entry->place.depth,
				     .tag = tag};
	if (answer_from_memory(s, ev, entry)) {
		push_event(s, ev);
	} else {
		list_push(&s->requests, ev);
		pthread_cond_signal(&s->reader_work);
	}
	unlock(s);
	return 0;
}

void cache_store_touch(struct cache_store *s, const struct tier_item *item)
{
	struct cache_entry *entry;

	lock(s);
	entry = cache_index_find(&s->index, item);
	if (entry)
		touch(s, entry);
	unlock(s);
}

/* An entry leaves the table for good; what is to be done about it is left to the threads. */
static void clear_entry(struct cache_store *s, struct cache_entry *entry)
{
	bool on_disk = entry->on_disk;

	cache_index_remove(&s->index, entry);
	if (entry->job)
		entry->job->entry = NULL;
	entry->job = NULL;
	entry->block = cache_index_unkeep(&s->index, entry);
	cache_index_unfile(&s->index, entry);
	if (on_disk && cache_dir_owned(&s->dir))
		doom(s, entry);
	else
		ring_append(&s->trash, &entry->host);
}

void cache_store_clear(struct cache_store *s)
{
	struct list kept;
	struct event *ev;

	list_init(&kept);
	lock(s);
	for (size_t i = 0; i < s->index.n_buckets; i++)
		while (s->index.buckets[i])
			clear_entry(s, s->index.buckets[i]);
	s->forget_found |= s->disk == CACHE_DISK_OPENING;
	while ((ev = list_pop(&s->events)))
		if (ev->e.type == CACHE_GOT)
			list_push(&kept, ev);
		else
			free(ev);
	while ((ev = list_pop(&kept)))
		list_push(&s->events, ev);
	pthread_cond_signal(&s->reader_work);
	unlock(s);
}

bool cache_store_poll(struct cache_store *s, struct cache_event *ret)
{
	struct event *ev;

	lock(s);
	ev = list_pop(&s->events);
	unlock(s);
	if (!ev)
		return false;
	*ret = ev->e;
	free(ev);
	return true;
}

/* ---- to be seen ---- */

void cache_store_stats(struct cache_store *s, struct cache_store_stats *ret)
{
	lock(s);
	*ret = s->stats;
	ret->disk = s->disk == CACHE_DISK_READY && s->failing ? CACHE_DISK_PAUSED : s->disk;
	ret->host_items = s->index.host_items;
	ret->host_bytes = s->index.host_bytes;
	ret->disk_items = s->index.own_files;
	ret->disk_bytes = s->index.disk_bytes;
	unlock(s);
}

const char *cache_store_disk_name(enum cache_store_disk d)
{
	static const char *const names[] = {
		[CACHE_DISK_NONE] = "none",	[CACHE_DISK_OPENING] = "opening",
		[CACHE_DISK_READY] = "ready",	[CACHE_DISK_READ_ONLY] = "read-only",
		[CACHE_DISK_PAUSED] = "paused", [CACHE_DISK_FAILED] = "failed",
	};

	return names[d];
}
