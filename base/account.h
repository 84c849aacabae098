/* The memory of one object, counted together with that of all objects of its kind.
 *
 * There are two bounds: for all objects together, and for those of one owner, which are half of that. The caller has the
 * two counters, and gives pointers to them. Any thread may change a counter at the same time, but an account belongs to
 * the thread of its object.
 *
 * An account has a reserve: at least so many bytes of it are counted while it is open. So an object that was made can
 * grow up to its reserve whatever others take. Memory that can be made again (a cache) is taken by account_take_spare,
 * which leaves a quarter of each bound to other memory, and is given back while account_is_tight. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

/* The bounds. Zeros: memory is not bounded. */
struct account_bounds {
	/* bytes that all objects take, and those of the owner; borrowed; NULL: memory is not bounded */
	_Atomic uint64_t *all, *own;
	uint64_t most; /* of all; those of one owner have at most half of it */
};

struct account {
	struct account_bounds bounds;
	uint64_t reserve; /* bytes */
	uint64_t used;	  /* by the object; max(used, reserve) bytes are in the counters */
};

/* Opens an account of no memory, with a reserve. The errors are those of account_take; then there is nothing to
 * close. */
int account_open(struct account *a, const struct account_bounds *bounds,
		 uint64_t reserve) MUST_CHECK;

/* Takes all that the account counts out of the counters. An account of zeros may be closed. */
void account_close(struct account *a);

/* Counts more bytes. On failure nothing is counted: -ENOSPC, all objects together have too much; -EDQUOT, those of this
 * owner have; -E2BIG, this object alone has more than an owner may have. */
int account_take(struct account *a, uint64_t bytes) MUST_CHECK;

/* The same for memory that can be made again: false, and nothing is counted, if the account is tight or would be. */
bool account_take_spare(struct account *a, uint64_t bytes) MUST_CHECK;

/* Changes the reserve, also beyond the bounds. */
void account_reserve(struct account *a, uint64_t reserve);

/* Counts bytes that are taken in any case, also beyond the bounds. */
void account_add(struct account *a, uint64_t bytes);

/* Counts fewer bytes. */
void account_give(struct account *a, uint64_t bytes);

/* Returns whether all objects together, or those of the owner, have more than three quarters of their bound. */
bool account_is_tight(const struct account *a);
