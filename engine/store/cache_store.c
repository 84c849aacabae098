#include "engine/store/cache_store_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { BLOCK_ALIGNMENT = 4096 };

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

void store_lock(struct cache_store *s)
{
	pthread_mutex_lock(&s->lock);
}

void store_unlock(struct cache_store *s)
{
	bool news = s->news;

	s->news = false;
	pthread_mutex_unlock(&s->lock);
	if (news && s->config.wake)
		s->config.wake(s->config.wake_arg);
}

void store_list_init(struct store_list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

void store_list_push(struct store_list *l, struct store_event *ev)
{
	ev->next = NULL;
	*l->tail = ev;
	l->tail = &ev->next;
}

struct store_event *store_list_pop(struct store_list *l)
{
	struct store_event *ev = l->head;

	if (ev) {
		l->head = ev->next;
		if (!l->head)
			l->tail = &l->head;
	}
	return ev;
}

void store_push_event(struct cache_store *s, struct store_event *ev)
{
	store_list_push(&s->events, ev);
	s->news = true;
}

/* FOUND or GONE. Without memory it is not told: whoever asks for the item learns it then. */
void store_tell(struct cache_store *s, enum cache_event_type type, const struct cache_place *p,
		const struct err *why)
{
	struct store_event *ev = malloc(sizeof(*ev));

	if (!ev)
		return;
	ev->e = (struct cache_event){.type = type, .item = p->item, .depth = p->depth};
	if (why)
		ev->e.why = *why;
	store_push_event(s, ev);
}

/* ---- entries; under the lock ---- */

uint64_t store_payload(const struct cache_store *s, enum tier_kind kind)
{
	return kind == TIER_PAGE ? s->config.page_bytes : s->config.state_bytes;
}

/* Frees an entry that nothing holds any more, and says so. */
void store_forget(struct cache_store *s, struct cache_entry *entry, const struct err *why)
{
	if (entry->block || entry->job || entry->on_disk)
		return;
	if (!entry->foreign)
		store_tell(s, CACHE_GONE, &entry->place, why);
	cache_index_remove(&s->index, entry);
	free(entry);
}

/* An entry that was made before the identity was known does not know its directory. */
struct cache_place store_place(const struct cache_store *s, const struct cache_entry *entry)
{
	struct cache_place p = entry->place;

	if (!entry->foreign)
		p.directory = cache_dir_own(&s->dir);
	return p;
}

void store_touch(struct cache_store *s, struct cache_entry *entry)
{
	s->index.now_ns = clock_now_ns();
	cache_index_touch(&s->index, entry);
	if (!cache_dir_owned(&s->dir))
		ring_remove(&entry->touch);
	else if (!ring_empty(&s->index.touch))
		pthread_cond_signal(&s->writer_work);
}

void store_drop_entry(void *arg, struct cache_entry *entry)
{
	cache_block_put(entry->block);
	free(entry);
}

/* A file that cannot be what its name says, or that nobody wants: to be deleted. */
void store_doom(struct cache_store *s, struct cache_entry *entry)
{
	ring_append(&s->doomed, &entry->disk);
	pthread_cond_signal(&s->writer_work);
}

/* ---- the queue ---- */

static uint64_t queue_limit(const struct cache_store *s)
{
	return s->config.queue_bytes ? s->config.queue_bytes : CACHE_STORE_QUEUE_BYTES;
}

/* One item fits always, however large. */
static bool queue_has_room(const struct cache_store *s, uint64_t bytes)
{
	return !s->beside_bytes || s->beside_bytes + bytes <= queue_limit(s);
}

struct cache_job *store_first_job(struct cache_store *s)
{
	return ring_empty(&s->jobs) ? NULL : container_of(s->jobs.next, struct cache_job, node);
}

struct cache_block *store_end_job(struct cache_store *s, struct cache_job *job)
{
	struct cache_block *b = job->block;

	ring_remove(&job->node);
	s->stats.queued_items--;
	s->stats.queued_bytes -= b->bytes;
	if (job->beside)
		s->beside_bytes -= b->bytes;
	if (job->entry)
		job->entry->job = NULL;
	/* Not for every item that goes: there is to be something to do. */
	if (s->puts_wait && s->beside_bytes <= queue_limit(s) / 2) {
		s->puts_wait = false;
		s->news = true;
	}
	free(job);
	return b;
}

static void keep_beside(struct cache_store *s, struct cache_job *job)
{
	job->beside = true;
	s->beside_bytes += job->block->bytes;
}

struct cache_block *store_unkeep(struct cache_store *s, struct cache_entry *entry)
{
	struct cache_block *b = cache_index_unkeep(&s->index, entry);
	struct cache_job *job = entry->job;

	if (!job || job->block != b)
		return b;
	/* One that is in no ring is being written. */
	if (!ring_empty(&job->node) && !queue_has_room(s, b->bytes)) {
		s->stats.unwritten_items++;
		cache_block_put(store_end_job(s, job)); /* not the last reference */
	} else {
		keep_beside(s, job);
	}
	return b;
}

/* From memory at once, if it is there. */
bool store_answer_from_memory(struct cache_store *s, struct store_event *ev,
			      struct cache_entry *entry)
{
	struct cache_block *b = entry->block ? entry->block : entry->job ? entry->job->block : NULL;

	if (!b)
		return false;
	ev->e.block = cache_block_ref(b);
	s->stats.host_hits++;
	store_touch(s, entry);
	return true;
}

/* ---- open and close ---- */

static void free_list(struct store_list *l)
{
	struct store_event *ev;

	while ((ev = store_list_pop(l))) {
		cache_block_put(ev->e.block);
		free(ev);
	}
}

static void free_ring_disk(struct ring *r)
{
	while (!ring_empty(r)) {
		struct cache_entry *entry = container_of(r->next, struct cache_entry, disk);

		ring_remove(&entry->disk);
		store_drop_entry(NULL, entry);
	}
}

static void free_store(struct cache_store *s)
{
	struct cache_job *job;

	while ((job = store_first_job(s)))
		cache_block_put(store_end_job(s, job));
	free_list(&s->requests);
	free_list(&s->events);
	free_ring_disk(&s->doomed);
	while (!ring_empty(&s->trash)) {
		struct cache_entry *entry = container_of(s->trash.next, struct cache_entry, host);

		ring_remove(&entry->host);
		store_drop_entry(NULL, entry);
	}
	cache_index_release(&s->index, store_drop_entry, NULL);
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
	ring_init(&s->jobs);
	store_list_init(&s->requests);
	store_list_init(&s->events);
	ring_init(&s->doomed);
	ring_init(&s->trash);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->writer_work, &attr);
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
		log_warning("cache: %s: what is there is read, nothing is written until this "
			    "daemon is restarted",
			    why.text);
	if (r == 0 && (r = -pthread_create(&s->writer, NULL, store_writer_main, s)) < 0)
		err_set(e, -r, "cannot start a thread of the cache: %s", strerror(-r));
	if (r < 0) {
		free_store(s);
		return r;
	}
	r = -pthread_create(&s->reader, NULL, store_reader_main, s);
	if (r < 0) {
		store_lock(s);
		s->closing = true;
		atomic_store(&s->cancel, true);
		pthread_cond_signal(&s->writer_work);
		store_unlock(s);
		pthread_join(s->writer, NULL);
		free_store(s);
		return err_set(e, -r, "cannot start a thread of the cache: %s", strerror(-r));
	}
	*ret = s;
	return 0;
}

void cache_store_close(struct cache_store *s, uint64_t timeout_ns)
{
	const struct timespec until = store_timespec(clock_now_ns() + timeout_ns);

	if (!s)
		return;
	store_lock(s);
	s->closing = true;
	pthread_cond_signal(&s->writer_work);
	pthread_cond_signal(&s->reader_work);
	/* What cannot be of use is not waited for. */
	if (s->disk == CACHE_DISK_OPENING && ring_empty(&s->jobs))
		atomic_store(&s->cancel, true);
	while (!s->writer_ended && pthread_cond_timedwait(&s->writer_done, &s->lock, &until) == 0)
		;
	if (s->stats.queued_items)
		log_warning("cache: %llu items could not be written in time",
			    (unsigned long long)s->stats.queued_items);
	atomic_store(&s->cancel, true);
	pthread_cond_signal(&s->writer_work);
	s->news = false;
	store_unlock(s);
	pthread_join(s->writer, NULL);
	pthread_join(s->reader, NULL);
	free_store(s);
}

/* ---- items ---- */

/* Whether what is put can be written, now or later. */
static bool may_write(const struct cache_store *s)
{
	return !s->closing && (s->disk == CACHE_DISK_OPENING || s->disk == CACHE_DISK_READY) &&
	       cache_dir_owned(&s->dir);
}

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
	ring_init(&job->node);
	if (n)
		memcpy(job->header.tokens, p->tokens, n * sizeof(*p->tokens));
	return job;
}

static void queue_job(struct cache_store *s, struct cache_job *job)
{
	job->entry->job = job;
	ring_append(&s->jobs, &job->node);
	if (job->entry->block != job->block)
		keep_beside(s, job);
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
		store_touch(s, entry);
	if (!entry->block && keep)
		cache_index_keep(&s->index, entry, p->block);
	if (s->index.host_bytes > s->config.host_bytes)
		pthread_cond_signal(&s->reader_work);
	if (!entry->job && !entry->on_disk && may_write(s) &&
	    (entry->block == p->block || queue_has_room(s, p->block->bytes)))
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

	assert(p->block->bytes == store_payload(s, p->item.kind));
	store_lock(s);
	r = put(s, p);
	store_unlock(s);
	cache_block_put(p->block);
	return r;
}

bool cache_store_ready(struct cache_store *s, uint64_t more)
{
	uint64_t bytes = MAX(s->config.page_bytes, s->config.state_bytes);
	bool ready;

	store_lock(s);
	/* What the host tier takes needs no other room; what will not be written waits for nothing. */
	ready = bytes <= s->config.host_bytes || !may_write(s) || (!more && !s->beside_bytes) ||
		s->beside_bytes + more + bytes <= queue_limit(s);
	s->puts_wait = !ready;
	store_unlock(s);
	return ready;
}

bool cache_store_has(struct cache_store *s, const struct tier_item *item)
{
	bool has;

	store_lock(s);
	has = cache_index_find(&s->index, item);
	store_unlock(s);
	return has;
}

int cache_store_get(struct cache_store *s, const struct tier_item *item, void *tag)
{
	struct store_event *ev = malloc(sizeof(*ev));
	struct cache_entry *entry;

	if (!ev)
		return -ENOMEM;
	store_lock(s);
	entry = cache_index_find(&s->index, item);
	if (!entry) {
		store_unlock(s);
		free(ev);
		return -ENOENT;
	}
	ev->e = (struct cache_event){.type = CACHE_GOT,
				     .item = entry->place.item,
				     .depth = entry->place.depth,
				     .tag = tag};
	if (store_answer_from_memory(s, ev, entry)) {
		store_push_event(s, ev);
	} else {
		store_list_push(&s->requests, ev);
		pthread_cond_signal(&s->reader_work);
	}
	store_unlock(s);
	return 0;
}

void cache_store_touch(struct cache_store *s, const struct tier_item *items, uint32_t n)
{
	store_lock(s);
	for (uint32_t i = 0; i < n; i++) {
		struct cache_entry *entry = cache_index_find(&s->index, &items[i]);

		if (entry)
			store_touch(s, entry);
	}
	store_unlock(s);
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
		store_doom(s, entry);
	else
		ring_append(&s->trash, &entry->host);
}

void cache_store_clear(struct cache_store *s)
{
	struct store_list kept;
	struct store_event *ev;

	store_list_init(&kept);
	store_lock(s);
	for (size_t i = 0; i < s->index.n_buckets; i++)
		while (s->index.buckets[i])
			clear_entry(s, s->index.buckets[i]);
	s->forget_found |= s->disk == CACHE_DISK_OPENING;
	while ((ev = store_list_pop(&s->events)))
		if (ev->e.type == CACHE_GOT)
			store_list_push(&kept, ev);
		else
			free(ev);
	while ((ev = store_list_pop(&kept)))
		store_list_push(&s->events, ev);
	pthread_cond_signal(&s->reader_work);
	pthread_cond_signal(&s->writer_work);
	store_unlock(s);
}

bool cache_store_poll(struct cache_store *s, struct cache_event *ret)
{
	struct store_event *ev;

	store_lock(s);
	ev = store_list_pop(&s->events);
	store_unlock(s);
	if (!ev)
		return false;
	*ret = ev->e;
	free(ev);
	return true;
}

/* ---- to be seen ---- */

void cache_store_stats(struct cache_store *s, struct cache_store_stats *ret)
{
	store_lock(s);
	*ret = s->stats;
	ret->disk = s->disk == CACHE_DISK_READY && s->failing ? CACHE_DISK_PAUSED : s->disk;
	ret->host_items = s->index.host_items;
	ret->host_bytes = s->index.host_bytes;
	ret->disk_items = s->index.own_files;
	ret->disk_bytes = s->index.disk_bytes;
	store_unlock(s);
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
