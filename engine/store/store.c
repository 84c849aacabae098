#include "engine/store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/store/state.h"

/* ---- open and close ---- */

static void free_events(struct list *l)
{
	struct pending_event *ev;

	while ((ev = store_pop_event(l))) {
		store_block_put(ev->e.block);
		free(ev);
	}
}

static void free_store(struct store *s)
{
	struct store_job *job;

	while ((job = store_first_job(s)))
		store_block_put(store_end_job(s, job));
	free_events(&s->requests);
	free_events(&s->events);
	list_for_each (entry, &s->doomed, struct store_entry, disk)
		store_drop_entry(NULL, entry);
	list_for_each (entry, &s->trash, struct store_entry, host)
		store_drop_entry(NULL, entry);
	store_index_release(&s->index, store_drop_entry, NULL);
	store_dir_close(&s->dir);
	pthread_cond_destroy(&s->writer_work);
	pthread_cond_destroy(&s->reader_work);
	pthread_cond_destroy(&s->writer_done);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* The pause after a failed write, in ns, unless the config has another. */
#define RETRY_NS 60000000000u

static struct store *new_store(const struct store_config *c)
{
	struct store *s = calloc(1, sizeof(*s));
	uint64_t bytes = MAX(c->host_bytes, c->disk_bytes ? c->disk_bytes : UINT64_C(1) << 37);
	pthread_condattr_t attr;

	if (!s || store_index_init(&s->index, bytes / MAX(c->page_bytes, UINT64_C(1))) < 0) {
		free(s);
		return NULL;
	}
	s->config = *c;
	if (!c->queue_bytes)
		s->config.queue_bytes = STORE_QUEUE_BYTES;
	if (!c->retry_ns)
		s->config.retry_ns = RETRY_NS;
	s->dir.fd = s->dir.lock_fd = -1;
	list_init(&s->jobs);
	list_init(&s->requests);
	list_init(&s->events);
	list_init(&s->doomed);
	list_init(&s->trash);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->writer_work, &attr);
	pthread_cond_init(&s->reader_work, NULL);
	pthread_cond_init(&s->writer_done, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

int store_open(const struct store_config *c, struct store **ret, struct err *e)
{
	struct store *s = new_store(c);
	struct err why = {0};
	int r = 0;

	if (!s)
		return err_no_memory(e);
	if (c->dir) {
		r = store_dir_open(c->dir, &s->dir, &why, e);
		s->disk = STORE_DISK_OPENING;
	}
	if (r == 0 && why.code)
		log_warning("cache: %s: files are read, none is written until this "
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

void store_close(struct store *s, uint64_t timeout_ns)
{
	const struct timespec until = clock_timespec(clock_now_ns() + timeout_ns);

	if (!s)
		return;
	store_lock(s);
	s->closing = true;
	pthread_cond_signal(&s->writer_work);
	pthread_cond_signal(&s->reader_work);
	/* without jobs nothing is to be written, and the identity is not needed */
	if (s->disk == STORE_DISK_OPENING && list_empty(&s->jobs))
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

/* Returns whether items can be written, now or later. */
static bool may_write(const struct store *s)
{
	return !s->closing && (s->disk == STORE_DISK_OPENING || s->disk == STORE_DISK_READY) &&
	       store_dir_owned(&s->dir);
}

static struct store_job *new_job(struct store *s, const struct store_put *p,
				 struct store_entry *entry)
{
	uint32_t n = p->item.kind == TIER_PAGE ? s->config.page_tokens : 0;
	struct store_job *job = malloc(sizeof(*job) + n * sizeof(*p->tokens));

	if (!job)
		return NULL;
	*job = (struct store_job){
		.entry = entry,
		.block = store_block_ref(p->block),
		.header = {.item = p->item,
			   .parent = p->parent,
			   .depth = p->depth,
			   .n_tokens = n,
			   .tokens = (int32_t *)(void *)(job + 1),
			   .payload_bytes = p->block->bytes},
	};
	list_init(&job->node);
	if (n)
		memcpy(job->header.tokens, p->tokens, n * sizeof(*p->tokens));
	return job;
}

static void queue_job(struct store *s, struct store_job *job)
{
	job->entry->job = job;
	list_append(&s->jobs, &job->node);
	if (job->entry->block != job->block)
		store_keep_beside(s, job);
	s->stats.queued_items++;
	s->stats.queued_bytes += job->block->bytes;
	pthread_cond_signal(&s->writer_work);
}

/* Does the work of store_put, under the lock. The caller keeps its reference to the block. */
static int put_item(struct store *s, const struct store_put *p)
{
	const struct store_place place = {store_dir_own(&s->dir), p->item, p->depth};
	struct store_entry *entry = store_index_find(&s->index, &p->item);
	bool known = entry, keep = p->block->bytes <= s->config.host_bytes;
	struct store_job *job = NULL;

	s->index.now_ns = clock_now_ns();
	if (!entry)
		entry = store_index_add(&s->index, &place, false);
	if (!entry)
		return -ENOMEM;
	entry->parent = p->parent;
	entry->has_parent = p->depth > s->config.page_tokens;
	if (known)
		store_note_use(s, entry);
	if (!entry->block && keep)
		store_index_keep(&s->index, entry, p->block);
	if (s->index.host_bytes > s->config.host_bytes)
		pthread_cond_signal(&s->reader_work);
	if (!entry->job && !entry->on_disk && may_write(s) &&
	    (entry->block == p->block || store_queue_has_room(s, p->block->bytes)))
		job = new_job(s, p, entry);
	if (job)
		queue_job(s, job);
	else if (store_dir_owned(&s->dir) && !entry->job && !entry->on_disk)
		s->stats.unwritten_items++;
	if (entry->block || entry->job || entry->on_disk)
		return 0;
	store_index_remove(&s->index, entry);
	return -ENOBUFS;
}

int store_put(struct store *s, const struct store_put *p)
{
	int r;

	assert(p->block->bytes == store_payload(s, p->item.kind));
	store_lock(s);
	r = put_item(s, p);
	store_unlock(s);
	store_block_put(p->block);
	return r;
}

bool store_ready(struct store *s, uint64_t more)
{
	uint64_t bytes = MAX(s->config.page_bytes, s->config.state_bytes);
	bool ready;

	store_lock(s);
	/* An item that fits into the host tier does not add to beside_bytes when it is put. If nothing can be written,
	 * waiting does not help. */
	ready = bytes <= s->config.host_bytes || !may_write(s) || (!more && !s->beside_bytes) ||
		s->beside_bytes + more + bytes <= s->config.queue_bytes;
	s->puts_wait = !ready;
	store_unlock(s);
	return ready;
}

bool store_has(struct store *s, const struct tier_item *item)
{
	bool has;

	store_lock(s);
	has = store_index_find(&s->index, item);
	store_unlock(s);
	return has;
}

int store_get(struct store *s, const struct tier_item *item, void *tag)
{
	struct pending_event *ev = malloc(sizeof(*ev));
	struct store_entry *entry;

	if (!ev)
		return -ENOMEM;
	store_lock(s);
	entry = store_index_find(&s->index, item);
	if (!entry) {
		store_unlock(s);
		free(ev);
		return -ENOENT;
	}
	*ev = (struct pending_event){.e = {.type = STORE_GOT,
					   .item = entry->place.item,
					   .depth = entry->place.depth,
					   .tag = tag}};
	if (store_answer_from_memory(s, ev, entry)) {
		store_push_event(s, ev);
	} else {
		list_append(&s->requests, &ev->node);
		pthread_cond_signal(&s->reader_work);
	}
	store_unlock(s);
	return 0;
}

void store_touch(struct store *s, const struct tier_item *items, uint32_t n)
{
	store_lock(s);
	for (uint32_t i = 0; i < n; i++) {
		struct store_entry *entry = store_index_find(&s->index, &items[i]);

		if (entry)
			store_note_use(s, entry);
	}
	store_unlock(s);
}

/* Hands an entry that has left the map to one of the store's threads, which frees it: to the writer if this process is
 * the owner and the entry has a file, which the writer deletes, else to the reader. */
static void clear_entry(void *arg, struct store_entry *entry)
{
	struct store *s = arg;
	bool on_disk = entry->on_disk;

	if (entry->job)
		entry->job->entry = NULL;
	entry->job = NULL;
	entry->block = store_index_unkeep(&s->index, entry);
	store_index_unfile(&s->index, entry);
	if (on_disk && store_dir_owned(&s->dir))
		store_doom(s, entry);
	else
		list_append(&s->trash, &entry->host);
}

void store_clear(struct store *s)
{
	store_lock(s);
	store_index_drain(&s->index, clear_entry, s);
	s->forget_found |= s->disk == STORE_DISK_OPENING;
	list_for_each (ev, &s->events, struct pending_event, node) {
		if (ev->e.type == STORE_GOT)
			continue;
		list_remove(&ev->node);
		free(ev);
	}
	pthread_cond_signal(&s->reader_work);
	pthread_cond_signal(&s->writer_work);
	store_unlock(s);
}

bool store_poll(struct store *s, struct store_event *ret)
{
	struct pending_event *ev;

	store_lock(s);
	ev = store_pop_event(&s->events);
	store_unlock(s);
	if (!ev)
		return false;
	*ret = ev->e;
	free(ev);
	return true;
}

/* ---- statistics ---- */

void store_stats(struct store *s, struct store_stats *ret)
{
	store_lock(s);
	*ret = s->stats;
	ret->disk = s->disk == STORE_DISK_READY && s->failing ? STORE_DISK_PAUSED : s->disk;
	ret->host_items = s->index.host_items;
	ret->host_bytes = s->index.host_bytes;
	ret->disk_items = s->index.own_files;
	ret->disk_bytes = s->index.disk_bytes;
	store_unlock(s);
}

const char *store_disk_name(enum store_disk d)
{
	static const char *const names[] = {
		[STORE_DISK_NONE] = "none",	[STORE_DISK_OPENING] = "opening",
		[STORE_DISK_READY] = "ready",	[STORE_DISK_READ_ONLY] = "read-only",
		[STORE_DISK_PAUSED] = "paused", [STORE_DISK_FAILED] = "failed",
	};

	return names[d];
}
