/* The data that the caller's thread and the store's two threads share, and the operations on them. Internal to
 * engine/store/.
 *
 *     store.c    opens and closes; the functions that the engine thread calls
 *     writer.c   the writer thread: has the identity computed, lists the files, writes jobs in their order, evicts
 *                files, deletes files of forgotten items and damaged files, sets the times of files that were used
 *     reader.c   the reader thread: answers gets of items that are not in memory; evicts blocks from host memory
 *                and frees entries of cleared items, because the writer may be busy hashing weights
 *
 * One lock guards the index, the queues and the events. No thread holds it during a system call on files, or while it
 * frees a block. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "engine/store/dir.h"
#include "engine/store/index.h"
#include "engine/store/store.h"

/* An item that waits to be written, or is being written. */
struct store_job {
	struct list node;	   /* in store.jobs; in no list while it is written */
	struct store_entry *entry; /* NULL: the item was forgotten */
	struct store_block *block; /* a reference */
	bool beside; /* the host tier does not have the block; its bytes count in beside_bytes */
	bool failed; /* writing it failed once */
	struct store_file_header header; /* its tokens lie behind this struct */
};

struct pending_event {
	struct list node;
	struct store_event e;
};

struct store {
	struct store_config config;
	/* Constant once the identity is known, except that the descriptors may lead to another directory
	 * (store_dir_renew). */
	struct store_dir dir;
	pthread_t writer, reader;
	atomic_bool cancel; /* the writer shall stop at once */

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t writer_work, reader_work, writer_done;
	struct store_index index;
	struct list jobs;      /* in the order of writing */
	uint64_t beside_bytes; /* bytes of blocks that jobs keep and the host tier does not */
	struct list requests;  /* gets for the reader, oldest first; linked by pending_event.node */
	struct list events;    /* events to be polled, oldest first; linked by pending_event.node */
	/* entries outside the index; the writer deletes their files, and frees the entries, before it writes another
	 * file; linked by .disk */
	struct list doomed;
	/* entries outside the index; the reader frees these entries; linked by .host */
	struct list trash;
	enum store_disk disk;
	uint64_t stamp;	       /* the newest time that this process chose for a file */
	uint64_t paused_until; /* end of the pause, while `failing`; on the monotonic clock */
	/* a write failed for a reason that may concern other files too, and no write has succeeded since */
	bool failing;
	uint32_t n_given_up; /* items given up because of their own file */
	bool forget_found;   /* the store was cleared while the disk tier was being opened */
	/* store_ready returned false: config.wake is to be called when beside_bytes is at most half of
	 * config.queue_bytes */
	bool puts_wait;
	bool closing, writer_ended;
	bool news;		  /* store_unlock is to call config.wake */
	struct store_stats stats; /* the counts; store_stats fills in the rest */
};

/* The main functions of the two threads; arg is the store. */
void *store_writer_main(void *arg);
void *store_reader_main(void *arg);

void store_lock(struct store *s);

/* Releases the lock. Calls config.wake if there is a new event to poll, or if store_ready can be asked again. */
void store_unlock(struct store *s);

/* Frees an entry that is not in the index, and gives the entry's reference to its block back. arg is not used. Needs no
 * lock. */
void store_drop_entry(void *arg, struct store_entry *entry);

/* ---- called under the lock ---- */

/* Takes the oldest event out of a list of events; NULL: the list is empty. */
struct pending_event *store_pop_event(struct list *l);

/* Makes an event ready to be polled; the store owns it from then on. */
void store_push_event(struct store *s, struct pending_event *ev);

/* Makes a STORE_FOUND or STORE_GONE; why: NULL for no reason. If memory is short, the event is lost. Then the caller
 * does not learn of the found item, or learns from a get that fails that the item is gone. */
void store_tell(struct store *s, enum store_event_type type, const struct store_place *p,
		const struct err *why);

/* Returns the size of the payload of an item of this kind, in bytes. */
uint64_t store_payload(const struct store *s, enum tier_kind kind);

/* Returns the place of an entry's file, also if the entry has no file. */
struct store_place store_place_of(const struct store *s, const struct store_entry *entry);

/* Notes a use of the entry. If this process is the owner, the writer will set the time of the entry's file, if any. */
void store_note_use(struct store *s, struct store_entry *entry);

/* Removes and frees an entry that has no block, job and file any more, and makes a STORE_GONE with the reason `why`
 * (NULL: none) unless the entry is foreign (index.h). Does nothing if the entry has a block, a job or a file. */
void store_forget(struct store *s, struct store_entry *entry, const struct err *why);

/* Makes the writer delete the file of an entry that is not in the index, and free the entry. */
void store_doom(struct store *s, struct store_entry *entry);

/* Makes the writer delete a file that no entry of the index has. This happens before another file of that name is
 * written. If memory is short, the file stays, and the next start finds it again. */
void store_doom_file(struct store *s, const struct store_place *place);

/* Returns whether one more block of this size may wait to be written outside the host tier. The first one always
 * may. */
bool store_queue_has_room(const struct store *s, uint64_t bytes);

/* Notes that the host tier does not have the job's block. */
void store_keep_beside(struct store *s, struct store_job *job);

/* Returns the first job of `jobs`, and leaves it there; NULL: there is none. */
struct store_job *store_first_job(struct store *s);

/* Ends a job, whether it was written or not: it leaves `jobs` and is freed. Returns its block, whose reference passes
 * to the caller. If the job's entry now has neither a block nor a file, the caller must call store_forget for it. */
struct store_block *store_end_job(struct store *s, struct store_job *job);

/* Takes the block of an entry from the host tier; its reference passes to the caller. A job that is writing this block
 * keeps it. A job that waits to write it keeps it if store_queue_has_room, else the job ends unwritten. */
struct store_block *store_unkeep(struct store *s, struct store_entry *entry);

/* Answers a get from memory: adds a reference to the block of the entry, or of its job, to the event, counts a hit of
 * the host tier and notes the use. False: the block is not in memory, and nothing was done. */
bool store_answer_from_memory(struct store *s, struct pending_event *ev, struct store_entry *entry);
