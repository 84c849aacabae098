/*
 * The directory of the disk tier, one blocking call at a time: who owns it, its files, their names, contents and
 * times. What is kept and what goes is the store's business. Inside engine/ only.
 *
 *     DIR/lock                  held by the owner (flock), and so is DIR
 *     DIR/weights               what was hashed of the models (cache_identity.h)
 *     DIR/<16 hex>/<2 hex>/     the first 8 bytes of an identity, the first of a key
 *         NAME                  an item (cache_file.h)
 *         NAME.partial          one that is being written; a leftover when nobody writes
 *
 * Files 0600, directories 0700. Nothing else in DIR is touched. A link to a directory (somebody's larger disk) is as good
 * as one; a link in place of a file is damage.
 */
#ifndef ENGINE_STORE_CACHE_DIR_H
#define ENGINE_STORE_CACHE_DIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/store/cache_file.h"
#include "engine/cache_identity.h"

struct cache_dir {
	char *path;			/* as the user has it */
	int fd, lock_fd;		/* lock_fd -1: not the owner */
	struct cache_identity identity; /* ours; zero before it is known */
};

/* Where a file is: below which identity's directory (the number of its hex digits), and its name. */
struct cache_place {
	uint64_t directory;
	struct tier_item item;
	uint32_t depth;
};

/* Where its file is, below DIR; with the terminator. */
enum { CACHE_DIR_PATH_MAX = 16 + 1 + 2 + 1 + CACHE_FILE_NAME_MAX };
void cache_dir_path(const struct cache_place *p, char ret[CACHE_DIR_PATH_MAX]);

/* Creates the last component when it is missing, and tries to own it: whether it does is d->lock_fd, and why not is
 * *ret_why (text "" when it does). Errors: it cannot be read or made. */
int cache_dir_open(const char *path, struct cache_dir *d, struct err *ret_why,
		   struct err *e) MUST_CHECK;
void cache_dir_close(struct cache_dir *d);

/* For an owner: when the directory was deleted or another one is in its place, makes and owns it anew, with none of the
 * files. 1: it did; 0: there was no need; else the error, and all is as before. */
int cache_dir_renew(struct cache_dir *d, struct err *e) MUST_CHECK;

static inline bool cache_dir_owned(const struct cache_dir *d)
{
	return d->lock_fd >= 0;
}

/* The number of our own directory's name. */
uint64_t cache_dir_own(const struct cache_dir *d);

/* Calls `see` for every item's file, until it returns a negative number, which is returned. bytes is the file's
 * size, used_ns its time. An owner removes leftovers on the way. What cannot be read is left out; of what is no file the log says so. */
int cache_dir_list(struct cache_dir *d,
		   int (*see)(void *arg, const struct cache_place *p, uint64_t bytes,
			      uint64_t used_ns),
		   void *arg) MUST_CHECK;

/* What a file of so many bytes takes on the disk, roughly. */
uint64_t cache_dir_cost(uint64_t file_bytes);

/* Writes an item of ours; used_ns becomes its time. -ENOSPC and the like; -ECANCELED after *cancel; nothing is left
 * behind then. The header's payload_sum is filled in here. */
int cache_dir_write(struct cache_dir *d, struct cache_file_header *h, const void *payload,
		    uint64_t used_ns, const atomic_bool *cancel, struct err *e) MUST_CHECK;

/* Reads an item of ours and checks everything: payload [bytes], which must be all of it. page_tokens: how many a page
 * has. -ENOENT; -EBADMSG: it is damaged, cut short, foreign; -EIO, and what else a system says. */
int cache_dir_read(struct cache_dir *d, const struct tier_item *item, uint32_t depth,
		   uint32_t page_tokens, void *payload, uint64_t bytes, struct err *e) MUST_CHECK;

/* Owners only; a file that is not there is fine. Other identities' empty directories go with their last file. */
void cache_dir_remove(struct cache_dir *d, const struct cache_place *p);
void cache_dir_touch(struct cache_dir *d, const struct cache_place *p, uint64_t used_ns);

#endif
