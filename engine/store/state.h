/*
 * The state that the caller's thread and the store's two threads share, and the operations on it. Inside engine/store/ only.
 *
 *     store.c    opens and closes; the functions that the engine thread calls
 *     writer.c   the writer thread: opens the disk tier, writes jobs in their order, evicts and deletes files, sets the times of
 *                files that were used
 *     reader.c   the reader thread: answers gets from files; evicts blocks from host memory, because the writer may be busy
 *                hashing weights
 *
 * One lock guards the index, the queues and the events. No thread holds it during a system call on files, or while it frees a
 * block.
 */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "engine/store/dir.h"
#include "engine/store/index.h"
#include "engine/store/store.h"

/* An item that waits to be written. */
struct store_job {
	struct list node;	   /* in store.jobs; in no list while it is written */
	struct store_entry *entry; /* NULL: the item was forgotten */
	struct store_block *block; /* a reference */
	bool beside; /* the host tier does not have the block: counted in beside_bytes */
	bool failed; /* one attempt to write it failed */
	struct store_file_header header; /* tokens point behind this struct */
};

struct pending_event {
	struct list node;
	struct store_event e;
};

struct store {
	struct store_config config;
	/* Does not change once entries on disk exist, but for its files and the directory that its descriptors lead to. */
	struct store_dir dir;
	pthread_t writer, reader;
	atomic_bool cancel; /* the writer shall stop at once */

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t writer_work, reader_work, writer_done;
	struct store_index index;
	struct list jobs;      /* oldest first */
	uint64_t beside_bytes; /* of blocks that only jobs keep */
	struct list requests;  /* gets for the reader: pending_event.node, oldest first */
	struct list events;    /* to be polled: pending_event.node, oldest first */
	struct list doomed;    /* entries (.disk) out of the index whose files the writer deletes */
	struct list trash;     /* entries (.host) out of the index that the reader frees */
	enum store_disk disk;
	uint64_t stamp;	       /* the newest time that a file was given */
	uint64_t paused_until; /* while `failing`; on the monotonic clock */
	bool failing;	       /* the last write failed */
	uint32_t n_given_up;   /* items that could not be written for a reason of their own */
	bool forget_found;     /* the store was cleared while the disk tier was being opened */
	bool puts_wait;	       /* store_ready returned false, and the caller was not woken since */
	bool closing, writer_ended;
	bool news;		  /* an event came since the lock was taken */
	struct store_stats stats; /* the counts; store_stats fills in the rest */
};

/* The main functions of the two threads; arg is the store. */
void *store_writer_main(void *arg);
void *store_reader_main(void *arg);

void store_lock(struct store *s);

/* Wakes the poller when events came since the lock was taken. */
void store_unlock(struct store *s);

/* Frees an entry that is not in the index, with its block. Needs no lock. */
void store_drop_entry(void *arg, struct store_entry *entry);

/* ---- all below under the lock ---- */

/* The oldest of a list of events, which leaves it; NULL: there is none. */
struct pending_event *store_pop_event(struct list *l);

/* Hands an event to the poller. Taken. */
void store_push_event(struct store *s, struct pending_event *ev);

/* Tells STORE_FOUND or STORE_GONE. Out of memory, the event is lost; a get for the item will tell. */
void store_tell(struct store *s, enum store_event_type type, const struct store_place *p,
		const struct err *why);

/* The size of the payload of an item of this kind, in bytes. */
uint64_t store_payload(const struct store *s, enum tier_kind kind);

/* Where the file of an entry is, or would be. */
struct store_place store_place_of(const struct store *s, const struct store_entry *entry);

/* The entry is used now; the writer will set its file's time. */
void store_note_use(struct store *s, struct store_entry *entry);

/* Removes an entry that has no block, job and file any more, and tells STORE_GONE; does nothing when it has one. */
void store_forget(struct store *s, struct store_entry *entry, const struct err *why);

/* Has the writer delete the file of an entry that is not in the index. Taken. */
void store_doom(struct store *s, struct store_entry *entry);

/* Whether a block of this size may wait to be written outside the host tier. An empty queue has room for any. */
bool store_queue_has_room(const struct store *s, uint64_t bytes);

/* The job's block is kept by the job alone. */
void store_keep_beside(struct store *s, struct store_job *job);

/* The oldest job, which stays in the queue; NULL: there is none. */
struct store_job *store_first_job(struct store *s);

/* Ends a job, whether it was written or not: it leaves the queue and is freed. The reference to its block is the caller's;
 * so is an entry that nothing else keeps. */
struct store_block *store_end_job(struct store *s, struct store_job *job);

/* The host tier gives up the block of an entry; the reference is the caller's. A job that still has to write the block keeps it
 * when the queue has room, and ends otherwise. */
struct store_block *store_unkeep(struct store *s, struct store_entry *entry);

/* Gives the event the entry's block, if it is in memory. */
bool store_answer_from_memory(struct store *s, struct pending_event *ev, struct store_entry *entry);
