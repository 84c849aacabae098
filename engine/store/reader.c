#include "engine/store/state.h"

#include <errno.h>
#include <stdlib.h>

/* Forgets a file that is damaged, missing or not readable; if this process is the owner, the writer thread deletes it.
 * Does nothing if the index does not have the file with this number (serial) any more, because another file may have
 * its name by now. Called under the lock. */
static void drop_file(struct store *s, const struct store_place *place, uint64_t serial, int error,
		      const struct err *why)
{
	struct store_entry *entry = store_index_find(&s->index, &place->item);

	if (!entry || !entry->on_disk || entry->serial != serial)
		return;
	store_index_unfile(&s->index, entry);
	if (store_dir_owned(&s->dir) && error != -ENOENT)
		store_doom_file(s, place);
	s->stats.damaged += error != -ENOENT;
	store_forget(s, entry, why);
}

/* Returns whether this error of reading tells that the file is damaged, missing or not readable, so that another try
 * would fail too. */
static bool is_lost(int error)
{
	return error == -EBADMSG || error == -ENOENT || error == -EIO || error == -EISDIR ||
	       error == -ENOTDIR || error == -EACCES;
}

/* Reads the file of an entry and puts the block or the error into the event. Called with the lock and returns with it,
 * but releases it while reading. */
static void read_entry(struct store *s, struct pending_event *ev, const struct store_place *place,
		       uint64_t serial)
{
	uint64_t bytes = store_payload(s, place->item.kind);
	struct store_entry *entry;
	struct store_block *b;
	int r;

	store_unlock(s);
	b = block_pool_take(s->config.pool, bytes);
	r = b ? store_dir_read(&s->dir, &place->item, place->depth, s->config.page_tokens, b->data,
			       bytes, &ev->e.why)
	      : err_set(&ev->e.why, ENOMEM, "out of memory for %llu bytes of the cache",
			(unsigned long long)bytes);
	ev->e.error = r;
	if (r < 0) {
		store_block_put(b);
		store_lock(s);
		if (is_lost(r))
			drop_file(s, place, serial, r, &ev->e.why);
		return;
	}
	store_lock(s);
	ev->e.block = b;
	ev->e.from_disk = true;
	s->stats.disk_hits++;
	entry = store_index_find(&s->index, &place->item);
	if (!entry)
		return;
	if (s->config.host_bytes && !entry->block)
		store_index_keep(&s->index, entry, b);
	store_note_use(s, entry);
}

static void answer(struct store *s, struct pending_event *ev)
{
	struct store_entry *entry = store_index_find(&s->index, &ev->e.item);

	if (!entry) {
		ev->e.error = err_set(&ev->e.why, ENOENT, "it was evicted before it could be read");
	} else if (!store_answer_from_memory(s, ev, entry)) {
		const struct store_place place = store_place_of(s, entry);

		read_entry(s, ev, &place, entry->serial);
	}
	s->stats.failed_gets += ev->e.error < 0;
	store_push_event(s, ev);
}

/* Frees one entry, or evicts one block, or answers one get. Called with the lock and returns with it. False: there was
 * nothing to do. */
static bool read_something(struct store *s)
{
	struct store_entry *entry;
	struct store_block *b;
	struct pending_event *ev;

	if ((entry = list_first(&s->trash, struct store_entry, host))) {
		list_remove(&entry->host);
		store_unlock(s);
		store_drop_entry(NULL, entry);
		store_lock(s);
		return true;
	}
	if (s->index.host_bytes > s->config.host_bytes) {
		entry = store_index_oldest_host(&s->index);
		b = store_unkeep(s, entry);
		s->stats.host_evicted++;
		store_forget(s, entry, NULL);
		store_unlock(s);
		store_block_put(b);
		store_lock(s);
		return true;
	}
	ev = store_pop_event(&s->requests);
	if (!ev)
		return false;
	answer(s, ev);
	store_unlock(s); /* calls config.wake */
	store_lock(s);
	return true;
}

void *store_reader_main(void *arg)
{
	struct store *s = arg;

	pthread_setname_np(pthread_self(), "cache-read");
	store_lock(s);
	while (!s->closing)
		if (!read_something(s))
			pthread_cond_wait(&s->reader_work, &s->lock);
	store_unlock(s);
	return NULL;
}
