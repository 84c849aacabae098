/* The tiers below the device: pages and states, named by their content, in host memory and in files.
 *
 *                        +------ host memory: blocks; over the budget the least recently used go ------+
 *     put(item, block) ->|                                                                             |-> GOT(block)
 *                        +--> queue -> writer thread -> DIR/<identity>/<2 hex>/<name> -> reader thread +
 *
 * One thread (the engine's) puts and gets items, and these calls never wait for a disk. Two threads of the store do the
 * slow work; the results are events that the caller polls. An item is named by its content (prefix_cache/tiers.h) and
 * never changes, so an item with the right name is the right item. Every byte of a file is checked before its item is
 * handed out. A file that fails a check or may not be read is a miss, and the owner (below) deletes it.
 *
 * Host memory (the host tier). A block can be got as soon as it was put. Above `host_bytes` the least recently used
 * blocks are evicted (index.h has the order). A block that is evicted before it is written stays in the queue, as long
 * as the queued blocks outside the host tier have at most `queue_bytes` (one block alone may have more); else it is
 * lost unwritten.
 *
 * Disk (the disk tier). A directory has at most one owner: the process that holds its locks (dir.h). Only the owner
 * writes and deletes files; it evicts files of other identities too. Another process on the same directory reads the
 * files that it finds when it starts.
 *
 * Files are written in the order of the puts, under a temporary name, and then renamed. Usually a file is there less
 * than a second after its put. If the disk is slower than the puts, the queue fills; without a host tier store_ready
 * then tells the caller to wait. There is no fsync: a file that a power failure damages fails its checks later.
 *
 * When a write fails (no space, read-only, broken), the store logs it once, stops writing for a minute and tries again,
 * that item last; meanwhile the queue waits. An item is given up when its write has failed twice, or once for a reason
 * that concerns its own file only. If the directory was deleted, the next write creates it again.
 *
 * The time of a file records when the owner last used it. Above `disk_bytes` the owner deletes the least recently used
 * files, whatever identity they have.
 *
 * Hashing the weights for the identity may need a minute. Until the identity is known the owner's puts wait in the
 * queue, and no item can be read from disk. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/store/block.h"
#include "engine/store/block_pool.h"
#include "engine/store/identity.h"
#include "prefix_cache/tiers.h"

struct store;

struct store_config {
	uint64_t host_bytes;  /* budget of host memory, in bytes of payload; 0: no host tier */
	const char *dir;      /* NULL: no disk tier */
	uint64_t disk_bytes;  /* budget of the files of all items; 0: no limit but the disk's */
	uint64_t queue_bytes; /* budget of queued blocks outside the host tier; 0: the default */
	uint64_t page_bytes, state_bytes; /* bytes of the payload of either kind */
	uint32_t page_tokens;
	struct block_pool
		*pool; /* of the blocks that are read from disk; borrowed; NULL: ordinary memory */
	/* Computes the identity. Called once, on the writer thread, if there is a disk tier. memo: a path in dir for a
	 * file that speeds up the next start; NULL if this process is not the owner, or memory is short. When *cancel
	 * is set, the function shall end soon, with -ECANCELED. `arg` must outlive the store. */
	int (*identify)(void *arg, const char *memo, const atomic_bool *cancel,
			struct cache_identity *ret, struct err *e);
	void *arg;
	/* Called from any thread, the caller's included, when there is an event to poll, or when store_ready can be
	 * asked again. May be NULL. */
	void (*wake)(void *arg);
	void *wake_arg;
	uint64_t retry_ns; /* pause after a failed write; 0: a minute */
};

#define STORE_QUEUE_BYTES (1ull << 30) /* the default of queue_bytes */

/* Opens a store: copies the config, opens the directory and starts the threads. If only the last component of its path
 * is missing, the directory is created (mode 0700). Fails if the directory cannot be created or opened, or if memory or
 * threads are short. */
int store_open(const struct store_config *c, struct store **ret, struct err *e) MUST_CHECK;

/* Writes queued items until none is left or timeout_ns have passed, and frees the store; NULL: does nothing. Events
 * that were not polled are dropped; the caller's references to blocks stay valid. */
void store_close(struct store *s, uint64_t timeout_ns);

/* ---- items; one thread (the engine's) ---- */

struct store_put {
	struct tier_item item;
	/* Key of the page before the item's page; T_0 of the space (key.h) if the item's page is the first one. A
	 * state's page is the one at whose end the state is. */
	struct content_key parent;
	uint32_t depth;		   /* tokens from the prompt's beginning to the item's end */
	const int32_t *tokens;	   /* [page_tokens] of a page, copied; NULL for a state */
	struct store_block *block; /* taken, also on failure */
};

/* Adds an item. An item that is known already counts as used; its bytes are kept or written only where they are
 * missing. 0: the item is known, until STORE_GONE is polled for it or store_clear is called. -ENOBUFS: there is no room
 * for it (it does not fit into the host tier; and either the queue is full, or nothing can be written, or memory is
 * short). -ENOMEM. */
int store_put(struct store *s, const struct store_put *p) MUST_CHECK;

/* Returns whether another item may be put, if the caller has `more` bytes of items that it will put as well. False: too
 * many bytes wait to be written, so the caller should wait; config.wake is called when it is time to ask again. Always
 * true if the host tier is large enough for an item, or if nothing can be written. */
bool store_ready(struct store *s, uint64_t more);

/* Returns whether the item is known: in memory, queued or on disk. */
bool store_has(struct store *s, const struct tier_item *item);

/* Asks for an item's bytes: a STORE_GOT with this tag will come, also if they cannot be read. -ENOENT: the item is
 * not known; -ENOMEM. After an error no event comes. */
int store_get(struct store *s, const struct tier_item *item, void *tag) MUST_CHECK;

/* Marks items [n] as used now, in memory and on disk; unknown items are skipped. The caller reports the pages and the
 * state of a prefix from which a request resumes, the deepest first, also if they lie on the device or were just got.
 * So the beginning of a prefix outlives its end, and prefixes that are used on the device stay on disk for the next
 * start. */
void store_touch(struct store *s, const struct tier_item *items, uint32_t n);

/* Forgets all items of this identity; an owner's writer thread deletes their files. No STORE_GONE comes for them,
 * and no STORE_FOUND for a file from before. Gets that wait for the reader thread fail, unless their item is put
 * again before. A get that was answered before, or whose file the reader thread has opened, ends as if nothing had
 * happened. */
void store_clear(struct store *s);

enum store_event_type {
	STORE_FOUND, /* the item was on disk when the store was opened */
	/* the item is in no tier any more; why.text is the error of reading its file if that is the reason, else
	 * empty */
	STORE_GONE,
	STORE_GOT, /* answers a store_get */
};

struct store_event {
	enum store_event_type type;
	struct tier_item item;
	uint32_t depth;
	/* Except for `why`, the members below belong to STORE_GOT. */
	void *tag;
	struct store_block *block; /* a reference for the caller; NULL on failure */
	/* 0; -ENOENT: evicted, cleared or deleted meanwhile; -EBADMSG: the file fails a check (store_dir_read); -EIO,
	 * -ENOMEM or another errno of reading */
	int error;
	bool from_disk; /* the block was read from a file */
	struct err why; /* the reason for the error or for the STORE_GONE, for a log line */
};

/* Takes the oldest event; false: there is none. If a get finds that the file of an item is damaged or missing, the
 * STORE_GONE comes before the STORE_GOT. */
bool store_poll(struct store *s, struct store_event *ret);

/* ---- statistics; any thread ---- */

enum store_disk {
	STORE_DISK_NONE,    /* there is no disk tier */
	STORE_DISK_OPENING, /* the identity is being computed, or the files are being listed */
	STORE_DISK_READY,
	/* another process is the owner, or the directory cannot be written or locked */
	STORE_DISK_READ_ONLY,
	STORE_DISK_PAUSED, /* writing failed, and no write has succeeded since */
	STORE_DISK_FAILED, /* the identity could not be computed: only host memory is used */
};

struct store_stats {
	enum store_disk disk;
	uint64_t host_items, host_bytes;
	uint64_t disk_items; /* files of this identity */
	/* bytes that the files of this identity take on disk; for an owner also those of other identities */
	uint64_t disk_bytes;
	uint64_t queued_items, queued_bytes; /* items to be written */
	/* Counts since the store was opened. */
	uint64_t host_hits, disk_hits, failed_gets;
	uint64_t written_items, written_bytes;
	uint64_t unwritten_items; /* puts of an owner that led to no file: no room, or errors */
	uint64_t host_evicted, disk_evicted;
	/* files that failed a check or could not be read; missing files do not count */
	uint64_t damaged;
};

void store_stats(struct store *s, struct store_stats *ret);

/* Returns the name of this state of the disk tier in GET /cache: "ready", "read-only", ... */
const char *store_disk_name(enum store_disk d);
