/*
 * The workers that a registry (`tigon registry`) remembers, each for the time that its announcement names, at most
 * REGISTRY_TTL_MAX_NS.
 *
 * A worker is known by its endpoint (its address). An announcement of a known endpoint usually comes from the same
 * process and renews its time. If it comes from another process, which was started in place of the first one, that
 * process replaces the worker. A farewell (an announcement with a time of 0) removes only the process that sent it, so
 * that a late farewell does not remove the process that was started afterwards.
 *
 * There are at most WIRE_PEERS_MAX workers. In a full table the workers that are there can renew their announcements; a
 * new worker is refused until one of the others leaves or expires.
 *
 * Pure: no sockets; times are arguments. One thread.
 */
#pragma once

#include "protocol/transfer/message.h"

#define REGISTRY_TTL_MAX_NS ((uint64_t)60 * 1000000000)

struct registry_table;

enum registry_change {
	/* the process at a known endpoint renewed its time; or a process that is not in the table said farewell */
	REGISTRY_NOTHING,
	REGISTRY_CAME,	   /* the worker is new */
	REGISTRY_REPLACED, /* a new process is at a known endpoint */
	REGISTRY_LEFT,	   /* the worker said farewell and was removed */
	REGISTRY_FULL,	   /* the worker is new and the table is full */
};

/* Makes an empty table. NULL: out of memory. */
struct registry_table *registry_table_new(void) MUST_CHECK;
void registry_table_free(struct registry_table *t);

/* Handles an ANNOUNCE that wire_parse accepted. Call registry_table_expire before, until it returns false. */
enum registry_change registry_table_announce(struct registry_table *t,
					     const struct wire_announce *a,
					     uint64_t now_ns) MUST_CHECK;

/* Removes one worker whose time is over, and fills *ret with its announcement; false: there is none. */
bool registry_table_expire(struct registry_table *t, uint64_t now_ns,
			   struct wire_announce *ret) MUST_CHECK;

/* Returns the time at which registry_table_expire has to be called again; UINT64_MAX: the table is empty. */
uint64_t registry_table_deadline(const struct registry_table *t);

/* Answers a LIST: fills *ret with the workers of the role and model that it asks for (a model of zeros: any model)
 * whose time is not over. The workers are borrowed until the next call of this module. */
void registry_table_list(struct registry_table *t, const struct wire_list *asked, uint64_t now_ns,
			 struct wire_peers *ret);

uint32_t registry_table_count(const struct registry_table *t);
