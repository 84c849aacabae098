/*
 * The tiers below the device: pages and states by content, in host memory and in files.
 *
 *                        +--------- host memory: blocks, least recently used go --------+
 *     put(item, block) ->|                                                              |-> GOT(block)
 *                        +--> queue -> writer -> DIR/<identity>/<2 hex>/<name> -> reader +
 *
 * The engine thread calls, and is never kept waiting for a disk: what takes time is done by two threads of
 * the store (a writer, which also opens, lists, evicts and deletes; a reader) and comes back as events, which one
 * thread polls. An item is an immutable thing named by its content (prefix_cache/tiers.h), so that whoever has
 * it has the right one. Every byte that comes from a file is checked before it is handed out; what does
 * not check is deleted and is a miss.
 *
 * Host memory. A block that is put is there for a get at once. Over `host_bytes` the least recently used go. What
 * waits to be written stays until it is: at most `queue_bytes` of it beside host memory.
 *
 * Disk. One owner at a time holds DIR and DIR/lock (flock) and may write, delete and evict, whatever model a file belongs to;
 * another daemon on the same directory only reads what it finds at its start. A file is written under another name
 * and renamed, mode 0600, in the order of the puts, at once: it is there a second later unless the disk is slower
 * than the puts. Then what exceeds queue_bytes has to wait where it is (cache_store_ready). No fsync: a file that a
 * power cut damaged does not check. When writing fails (no space, read-only, broken) the store says so once, stops
 * writing for a minute and tries again; what is queued waits, and an item whose writing failed twice, or once by what is
 * in its own file's place, is given up. A directory that was deleted is made anew by the next write. Use is remembered
 * in the files' times, which order eviction: over `disk_bytes` the least recently used go, those of other models and of
 * older kernels among them.
 *
 * Until the identity is known (its weights may have to be read) puts queue and nothing of the disk can be got.
 */
#ifndef ENGINE_STORE_CACHE_STORE_H
#define ENGINE_STORE_CACHE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cache_identity.h"
#include "prefix_cache/tiers.h"

struct cache_store;

struct cache_store_config {
	uint64_t host_bytes; /* of payloads kept in memory; 0: no host tier */
	const char *
		dir; /* NULL: no disk tier. Created (0700) when missing, its parent must be there */
	uint64_t disk_bytes; /* of all files below dir; 0: no limit but the disk */
	uint64_t
		queue_bytes; /* that wait to be written and are not in host memory; 0: CACHE_STORE_QUEUE_BYTES */
	uint64_t page_bytes,
		state_bytes; /* payload of an item of each kind; any other length is damage */
	uint32_t page_tokens;
	/* Called once, on the writer's thread. memo: a path inside dir; NULL when dir is not ours to write. Copied:
	 * neither needs to outlive cache_store_open but what `arg` points to, which must outlive the store. */
	int (*identify)(void *arg, const char *memo, const atomic_bool *cancel,
			struct cache_identity *ret, struct err *e);
	void *arg;
	/* Called from any thread, the engine's included, whenever there is something to poll. */
	void (*wake)(void *arg);
	void *wake_arg;
	uint64_t retry_ns; /* after a failed write; 0: a minute */
};

#define CACHE_STORE_QUEUE_BYTES (1ull << 30)

/* New. Starts the threads. Fails only where the directory is no use at all: it is not there and cannot be made, is
 * no directory, or cannot be read. */
int cache_store_open(const struct cache_store_config *c, struct cache_store **ret,
		     struct err *e) MUST_CHECK;

/* Writes what is queued, as far as that goes within timeout_ns, and ends. What was not polled is dropped; blocks
 * that the caller has stay valid. */
void cache_store_close(struct cache_store *s, uint64_t timeout_ns);

/* ---- blocks ---- */

/* The bytes of one item, counted references; nobody writes data after it was put. */
struct cache_block {
	void *data; /* [bytes], aligned to 4096 */
	size_t bytes;
	atomic_uint refs;
};

/* New, with one reference; NULL when out of memory. */
struct cache_block *cache_block_new(size_t bytes) MUST_CHECK;
struct cache_block *cache_block_ref(struct cache_block *b);
void cache_block_put(struct cache_block *b); /* NULL is nothing */

/* ---- items; one thread (the engine's) ---- */

/* What is put with an item's bytes. */
struct cache_put {
	struct tier_item item;
	struct content_key parent; /* key of the page before; the space's for the first */
	uint32_t depth;		   /* tokens to the item's end */
	const int32_t *tokens;	   /* [page_tokens] of a page, copied; NULL for a state */
	struct cache_block *block;
};

/* Takes the caller's reference to the block, also on failure. 0: it is known from now on, until CACHE_GONE (if it was
 * known before, nothing happens but that it counts as used). -ENOBUFS: it is kept nowhere (no host tier and the
 * queue is full, or there is no disk to write to). -ENOMEM. */
int cache_store_put(struct cache_store *s, const struct cache_put *p) MUST_CHECK;

/* Whether an item may be put, after others of `more` bytes that are on their way here. False: what is to be put should
 * wait, as the disk cannot follow; config.wake is called when it is time to ask again. */
bool cache_store_ready(struct cache_store *s, uint64_t more);

/* Whether the item is known: in memory, queued or on disk. */
bool cache_store_has(struct cache_store *s, const struct tier_item *item);

/* Asks for an item's bytes: a CACHE_GOT with this tag will come, whatever happens. -ENOENT: it is not known; -ENOMEM;
 * no event then. */
int cache_store_get(struct cache_store *s, const struct tier_item *item, void *tag) MUST_CHECK;

/* Items [n] count as used now, in memory and on disk; those that are not known are passed over. To be called for every
 * page and the state of a prefix that a request resumes, wherever it lies (also after getting it), deepest first: so
 * the beginning outlives what follows it, and what is used on the device stays on disk for the next start. */
void cache_store_touch(struct cache_store *s, const struct tier_item *items, uint32_t n);

/* Forgets everything of this identity, files too (their deletion follows in the background). No CACHE_GONE comes for
 * what is forgotten; gets that are out fail. Events polled later belong to what was put later, or are such failures;
 * what was found on disk before is not announced any more. */
void cache_store_clear(struct cache_store *s);

enum cache_event_type {
	CACHE_FOUND, /* it was on disk when the store was opened */
	CACHE_GONE,  /* it is in no tier any more; why.text says "" for eviction, else the damage */
	CACHE_GOT,   /* answer to a get */
};

struct cache_event {
	enum cache_event_type type;
	struct tier_item item;
	uint32_t depth;
	void *tag;		   /* GOT */
	struct cache_block *block; /* GOT: a reference for the caller; NULL on failure */
	int error; /* GOT: 0; -ENOENT evicted meanwhile; -EBADMSG damaged, foreign, truncated; -EIO and others */
	bool from_disk; /* GOT: it was read from a file */
	struct err why; /* the reason of error, fit for a log line */
};

/* The oldest event; false: there is none. A CACHE_GONE of an item that turned out damaged comes before its GOT. */
bool cache_store_poll(struct cache_store *s, struct cache_event *ret);

/* ---- to be seen; any thread ---- */

enum cache_store_disk {
	CACHE_DISK_NONE,    /* no directory */
	CACHE_DISK_OPENING, /* the identity is being computed, or files are listed */
	CACHE_DISK_READY,
	CACHE_DISK_READ_ONLY, /* another daemon owns it, or it cannot be written */
	CACHE_DISK_PAUSED,    /* a write failed; tried again later */
	CACHE_DISK_FAILED,    /* no identity: only memory */
};

struct cache_store_stats {
	enum cache_store_disk disk;
	uint64_t host_items, host_bytes;
	uint64_t disk_items, disk_bytes;     /* of this identity; disk_bytes of all below dir */
	uint64_t queued_items, queued_bytes; /* to be written */
	/* since the store was opened */
	uint64_t host_hits, disk_hits, failed_gets;
	uint64_t written_items, written_bytes,
		unwritten_items; /* unwritten: no room in queue or on disk, failed, no longer wanted in memory */
	uint64_t host_evicted, disk_evicted, damaged;
};

void cache_store_stats(struct cache_store *s, struct cache_store_stats *ret);

/* "ready", "read-only", ... */
const char *cache_store_disk_name(enum cache_store_disk d);

#endif
