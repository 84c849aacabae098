/*
 * The directory of the disk tier, and the files in it. One process at a time, the owner, may write there (store.h). The
 * functions may wait for the disk; the store decides which files are kept and which are deleted.
 *
 *     DIR/lock                  locked by the owner (flock); DIR itself is locked too if the file system can do so
 *     DIR/weights               hashes of model files that were computed before (engine/cache_identity.h);
 *                               weights.partial while it is written
 *     DIR/<16 hex>/<2 hex>/     named by the first 8 bytes of an identity, and by the first byte of a key
 *         NAME                  an item (file.h)
 *         NAME.partial          an item that is being written; when no owner runs, a leftover
 *
 * Files have mode 0600, directories 0700. Nothing else in DIR is touched. A symbolic link to a directory is followed,
 * so that some directories may lie on another disk; a symbolic link in place of an item's file is not followed.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/store/file.h"
#include "engine/store/identity.h"

struct store_dir {
	char *path; /* the path that store_dir_open got; owned */
	/* of DIR, and of its lock; lock_fd -1: this process is not the owner */
	int fd, lock_fd;
	struct cache_identity identity; /* of this process's items; zero before it is known */
};

/* The place of an item's file. */
struct store_place {
	/* the directory of the file's identity: the 16 hex digits as a number */
	uint64_t directory;
	struct tier_item item;
	uint32_t depth; /* tokens from the prompt's beginning to the item's end */
};

/* store_dir_path writes the path of an item's file, relative to DIR. Its size with the terminating 0 is
 * STORE_DIR_PATH_MAX or less. */
enum { STORE_DIR_PATH_MAX = 16 + 1 + 2 + 1 + STORE_FILE_NAME_MAX };
void store_dir_path(const struct store_place *p, char ret[STORE_DIR_PATH_MAX]);

/* Opens the directory and tries to become its owner. If only the last component of the path is missing, the directory
 * is created. If another process owns it, or it cannot be written or locked, d->lock_fd is -1 and *ret_why has the
 * reason; else ret_why->code is 0. Fails if the directory cannot be created or opened, or if memory is short. */
int store_dir_open(const char *path, struct store_dir *d, struct err *ret_why,
		   struct err *e) MUST_CHECK;
void store_dir_close(struct store_dir *d);

/* Checks whether an owner's directory was deleted or replaced. If it was, opens the directory at the path, creates it
 * if it is missing, becomes its owner, and returns 1: the files that were known are gone. Returns 0 if the path still
 * leads to the open directory, or if that cannot be found out. After an error the old directory is still open. */
int store_dir_renew(struct store_dir *d, struct err *e) MUST_CHECK;

static inline bool store_dir_owned(const struct store_dir *d)
{
	return d->lock_fd >= 0;
}

/* Returns the directory of d->identity, as a number like in struct store_place. */
uint64_t store_dir_own(const struct store_dir *d);

/* Calls `see` for the file of every item, with its size and the time of its last use. If `see` returns another number
 * than 0, the listing ends and returns that number; else it returns 0. An owner also deletes leftovers (*.partial).
 * Directories that cannot be read are skipped. Links, directories and the like with the name of an item are skipped
 * too; one line of the log says how many there are. */
int store_dir_list(struct store_dir *d,
		   int (*see)(void *arg, const struct store_place *p, uint64_t bytes,
			      uint64_t used_ns),
		   void *arg) MUST_CHECK;

/* Returns about how much disk space a file of this size takes, in bytes. */
uint64_t store_dir_cost(uint64_t file_bytes);

/* Writes the file of an item with this process's identity and sets its time to used_ns; fills in h->payload_sum.
 * -ECANCELED when *cancel is set; -ENOSPC or another errno. After an error the partial file is deleted. */
int store_dir_write(struct store_dir *d, struct store_file_header *h, const void *payload,
		    uint64_t used_ns, const atomic_bool *cancel, struct err *e) MUST_CHECK;

/* Reads an item with this process's identity: payload [bytes], which must be the file's whole payload. Everything is
 * checked. -ENOENT: there is no file; -EBADMSG: the file is damaged, cut short, of another identity or not a regular
 * file; -EIO or another errno. */
int store_dir_read(struct store_dir *d, const struct tier_item *item, uint32_t depth,
		   uint32_t page_tokens, void *payload, uint64_t bytes, struct err *e) MUST_CHECK;

/* store_dir_remove deletes a file, and its directories too if they belong to another identity and are empty then.
 * store_dir_touch sets a file's time. Both are for owners and ignore failures. */
void store_dir_remove(struct store_dir *d, const struct store_place *p);
void store_dir_touch(struct store_dir *d, const struct store_place *p, uint64_t used_ns);
