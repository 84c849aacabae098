#include "engine/store/cache_store_internal.h"

#include <errno.h>
#include <stdlib.h>

/* A file that will not do: it is deleted and forgotten, unless it went meanwhile and what is there now is another one.
 * Under the lock again afterwards. */
static void drop_file(struct cache_store *s, const struct cache_place *place, uint64_t serial,
		      int error, struct err *why)
{
	struct cache_entry *entry;

	/* Before it is forgotten: the writer makes no new one as long as this one is known. */
	if (cache_dir_owned(&s->dir) && error != -ENOENT)
		cache_dir_remove(&s->dir, place);
	store_lock(s);
	entry = cache_index_find(&s->index, &place->item);
	if (entry && entry->on_disk && entry->serial == serial) {
		cache_index_unfile(&s->index, entry);
		s->stats.damaged++;
		store_forget(s, entry, why);
	}
}

/* What says that the file, not the machine, is at fault. */
static bool is_damage(int error)
{
	return error == -EBADMSG || error == -ENOENT || error == -EIO || error == -EISDIR ||
	       error == -ENOTDIR;
}

/* Reads the file of an entry. The lock is held, is given up meanwhile, and held again. */
static void read_entry(struct cache_store *s, struct store_event *ev,
		       const struct cache_place *place, uint64_t serial)
{
	uint64_t bytes = store_payload(s, place->item.kind);
	struct cache_entry *entry;
	struct cache_block *b;
	int r;

	store_unlock(s);
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
			store_lock(s);
		return;
	}
	store_lock(s);
	ev->e.block = b;
	ev->e.from_disk = true;
	s->stats.disk_hits++;
	entry = cache_index_find(&s->index, &place->item);
	if (!entry)
		return;
	if (s->config.host_bytes && !entry->block)
		cache_index_keep(&s->index, entry, b);
	store_touch(s, entry);
}

static void answer(struct cache_store *s, struct store_event *ev)
{
	struct cache_entry *entry = cache_index_find(&s->index, &ev->e.item);

	if (!entry) {
		ev->e.error = err_set(&ev->e.why, ENOENT, "it was evicted before it could be read");
	} else if (!store_answer_from_memory(s, ev, entry)) {
		const struct cache_place place = store_place(s, entry);

		read_entry(s, ev, &place, entry->serial);
	}
	s->stats.failed_gets += ev->e.error < 0;
	store_push_event(s, ev);
}

/* One piece of work; the lock is held before and after. False: there is nothing to do. */
static bool read_something(struct cache_store *s)
{
	struct cache_entry *entry;
	struct cache_block *b;
	struct store_event *ev;

	if (!ring_empty(&s->trash)) {
		entry = container_of(s->trash.next, struct cache_entry, host);
		ring_remove(&entry->host);
		store_unlock(s);
		store_drop_entry(NULL, entry);
		store_lock(s);
		return true;
	}
	if (s->index.host_bytes > s->config.host_bytes) {
		entry = cache_index_oldest_host(&s->index);
		b = store_unkeep(s, entry);
		s->stats.host_evicted++;
		store_forget(s, entry, NULL);
		store_unlock(s);
		cache_block_put(b);
		store_lock(s);
		return true;
	}
	ev = store_list_pop(&s->requests);
	if (!ev)
		return false;
	answer(s, ev);
	store_unlock(s); /* tells */
	store_lock(s);
	return true;
}

void *store_reader_main(void *arg)
{
	struct cache_store *s = arg;

	pthread_setname_np(pthread_self(), "cache-read");
	store_lock(s);
	while (!s->closing)
		if (!read_something(s))
			pthread_cond_wait(&s->reader_work, &s->lock);
	store_unlock(s);
	return NULL;
}
