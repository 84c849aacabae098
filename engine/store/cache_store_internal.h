/*
 * What the files of the store share. Inside engine/cache_store*.c only.
 *
 *     cache_store.c         opening and closing, and all that the engine's thread calls
 *     cache_store_writer.c  the writer: opens the disk tier, writes jobs in their order, evicts, deletes, tells files that
 *                           they were used
 *     cache_store_reader.c  the reader: answers gets from files; frees host memory that is over its budget, so that
 *                           this goes on while the writer hashes weights
 *
 * One lock guards index, queues and events; nobody holds it while calling the system or freeing a block.
 */
#ifndef ENGINE_STORE_CACHE_STORE_INTERNAL_H
#define ENGINE_STORE_CACHE_STORE_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "engine/store/cache_dir.h"
#include "engine/store/cache_index.h"
#include "engine/store/cache_store.h"

/* One item that waits to be written. */
struct cache_job {
	struct ring node;	   /* in cache_store.jobs, or in none while it is written */
	struct cache_entry *entry; /* NULL: nobody wants it any more */
	struct cache_block *block; /* a reference */
	bool beside; /* the block is not the host tier's (any more): counted in beside_bytes */
	bool failed; /* to be written once already */
	struct cache_file_header header; /* tokens point behind this struct */
};

struct store_event {
	struct store_event *next;
	struct cache_event e;
};

struct store_list {
	struct store_event *head, **tail;
};

struct cache_store {
	struct cache_store_config config;
	struct cache_dir
		dir; /* fixed once entries on disk exist, but for its files, and what its descriptors lead to */
	pthread_t writer, reader;
	atomic_bool cancel; /* the writer shall stop at once */

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t writer_work, reader_work, writer_done;
	struct cache_index index;
	struct ring jobs;	    /* by .node, oldest first */
	uint64_t beside_bytes;	    /* that jobs keep beside the host tier */
	struct store_list requests; /* gets for the reader */
	struct store_list events;
	struct ring doomed; /* entries (by .disk) out of the table whose files the writer deletes */
	struct ring trash;  /* entries (by .host) out of the table that the reader frees */
	enum cache_store_disk disk;
	uint64_t stamp;	       /* the last use, in the files' time */
	uint64_t paused_until; /* monotonic; writing failed */
	bool failing;	       /* the last write failed */
	uint32_t n_given_up;   /* items that alone could not be written */
	bool forget_found;     /* cleared while the disk tier was being opened */
	bool puts_wait;	       /* since cache_store_ready said no */
	bool closing, writer_ended;
	bool news;			/* an event since the lock was taken */
	struct cache_store_stats stats; /* the counts; the rest is filled in when asked */
};
/* What the threads run; arg is the store. */
void *store_writer_main(void *arg);
void *store_reader_main(void *arg);

/* A time of clock_now_ns, for writer_work and writer_done. */
static inline struct timespec store_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

void store_lock(struct cache_store *s);

/* Wakes the poller when there are events since. */
void store_unlock(struct cache_store *s);

/* ---- all below under the lock ---- */

void store_list_init(struct store_list *l);
void store_list_push(struct store_list *l, struct store_event *ev);
struct store_event *store_list_pop(struct store_list *l); /* the oldest, or NULL */

/* Taken. */
void store_push_event(struct cache_store *s, struct store_event *ev);

/* FOUND or GONE. Without memory it is not told: whoever asks for the item learns it then. */
void store_tell(struct cache_store *s, enum cache_event_type type, const struct cache_place *p,
		const struct err *why);

/* Bytes of an item of this kind. */
uint64_t store_payload(const struct cache_store *s, enum tier_kind kind);

/* Where an entry's file is or would be. */
struct cache_place store_place(const struct cache_store *s, const struct cache_entry *entry);

/* Used now; the writer tells the file. */
void store_touch(struct cache_store *s, struct cache_entry *entry);

/* Frees an entry that nothing holds any more, and says so; else nothing. */
void store_forget(struct cache_store *s, struct cache_entry *entry, const struct err *why);

/* For an entry that is in no table: its file is to be deleted. Taken. */
void store_doom(struct cache_store *s, struct cache_entry *entry);

/* Frees an entry with its block (needs no lock). */
void store_drop_entry(void *arg, struct cache_entry *entry);

/* The oldest job, or NULL; it stays in the queue. */
struct cache_job *store_first_job(struct cache_store *s);

/* The job is over, written or not: out of the queue, uncounted, freed. Its entry, if it has one still, is the caller's
 * to look after; so is the reference to the block that is returned. */
struct cache_block *store_end_job(struct cache_store *s, struct cache_job *job);

/* The host tier gives up the block of an entry, which is returned. What still has to be written goes on to be kept
 * for that, if there is room. */
struct cache_block *store_unkeep(struct cache_store *s, struct cache_entry *entry);

/* Gives the event a block that is in memory, if there is one. */
bool store_answer_from_memory(struct cache_store *s, struct store_event *ev,
			      struct cache_entry *entry);

#endif
