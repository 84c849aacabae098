#include "engine/store/state.h"

#include <stdlib.h>

#include "base/clock.h"

/* ---- lock and events ---- */

void store_lock(struct store *s)
{
	pthread_mutex_lock(&s->lock);
}

void store_unlock(struct store *s)
{
	bool news = s->news;

	s->news = false;
	pthread_mutex_unlock(&s->lock);
	if (news && s->config.wake)
		s->config.wake(s->config.wake_arg);
}

struct pending_event *store_pop_event(struct list *l)
{
	struct pending_event *ev = list_first(l, struct pending_event, node);

	if (ev)
		list_remove(&ev->node);
	return ev;
}

void store_push_event(struct store *s, struct pending_event *ev)
{
	list_append(&s->events, &ev->node);
	s->news = true;
}

void store_tell(struct store *s, enum store_event_type type, const struct store_place *p,
		const struct err *why)
{
	struct pending_event *ev = malloc(sizeof(*ev));

	if (!ev)
		return;
	*ev = (struct pending_event){.e = {.type = type, .item = p->item, .depth = p->depth}};
	if (why)
		ev->e.why = *why;
	store_push_event(s, ev);
}

/* ---- entries ---- */

uint64_t store_payload(const struct store *s, enum tier_kind kind)
{
	return kind == TIER_PAGE ? s->config.page_bytes : s->config.state_bytes;
}

void store_forget(struct store *s, struct store_entry *entry, const struct err *why)
{
	if (entry->block || entry->job || entry->on_disk)
		return;
	if (!entry->foreign)
		store_tell(s, STORE_GONE, &entry->place, why);
	store_index_remove(&s->index, entry);
}

/* The entry itself does not have the number of its directory if it was made before the identity was known. */
struct store_place store_place_of(const struct store *s, const struct store_entry *entry)
{
	struct store_place p = entry->place;

	if (!entry->foreign)
		p.directory = store_dir_own(&s->dir);
	return p;
}

void store_note_use(struct store *s, struct store_entry *entry)
{
	s->index.now_ns = clock_now_ns();
	store_index_touch(&s->index, entry);
	if (!store_dir_owned(&s->dir))
		list_remove(&entry->touch);
	else if (!list_empty(&s->index.touch))
		pthread_cond_signal(&s->writer_work);
}

void store_drop_entry(void *arg, struct store_entry *entry)
{
	store_block_put(entry->block);
	free(entry);
}

void store_doom(struct store *s, struct store_entry *entry)
{
	list_append(&s->doomed, &entry->disk);
	pthread_cond_signal(&s->writer_work);
}

void store_doom_file(struct store *s, const struct store_place *place)
{
	struct store_entry *entry = store_index_add(&s->index, place, true);

	if (entry)
		store_doom(s, entry);
}

/* ---- jobs ---- */

bool store_queue_has_room(const struct store *s, uint64_t bytes)
{
	return !s->beside_bytes || s->beside_bytes + bytes <= s->config.queue_bytes;
}

struct store_job *store_first_job(struct store *s)
{
	return list_first(&s->jobs, struct store_job, node);
}

struct store_block *store_end_job(struct store *s, struct store_job *job)
{
	struct store_block *b = job->block;

	list_remove(&job->node);
	s->stats.queued_items--;
	s->stats.queued_bytes -= b->bytes;
	if (job->beside)
		s->beside_bytes -= b->bytes;
	if (job->entry)
		job->entry->job = NULL;
	/* The engine thread is likely to have several puts to make, so config.wake is called only when beside_bytes is
	 * at most half of config.queue_bytes. */
	if (s->puts_wait && s->beside_bytes <= s->config.queue_bytes / 2) {
		s->puts_wait = false;
		s->news = true;
	}
	free(job);
	return b;
}

void store_keep_beside(struct store *s, struct store_job *job)
{
	job->beside = true;
	s->beside_bytes += job->block->bytes;
}

struct store_block *store_unkeep(struct store *s, struct store_entry *entry)
{
	struct store_block *b = store_index_unkeep(&s->index, entry);
	struct store_job *job = entry->job;

	if (!job || job->block != b)
		return b;
	/* a job in no list is being written */
	if (!list_empty(&job->node) && !store_queue_has_room(s, b->bytes)) {
		s->stats.unwritten_items++;
		store_block_put(store_end_job(s, job)); /* the job's reference; b is another one */
	} else {
		store_keep_beside(s, job);
	}
	return b;
}

bool store_answer_from_memory(struct store *s, struct pending_event *ev, struct store_entry *entry)
{
	struct store_block *b = entry->block ? entry->block : entry->job ? entry->job->block : NULL;

	if (!b)
		return false;
	ev->e.block = store_block_ref(b);
	s->stats.host_hits++;
	store_note_use(s, entry);
	return true;
}
