/*
 * What a registry remembers: workers that announced themselves, each until its time is over.
 *
 * A worker is its endpoint: who announces one that is known already takes its place, since it is another process that was
 * started where the first one was. To be forgotten at once (ttl 0) is for that same process alone, so that a farewell
 * that is late does not forget its successor.
 *
 * Memory is bounded: WIRE_PEERS_MAX workers, each for REGISTRY_TTL_MAX_NS at most. When the table is full those who are
 * in it stay, and may come again; nobody else comes in before one of them has left.
 *
 * Pure: no sockets, times are arguments. One thread.
 */
#ifndef PROTOCOL_TRANSFER_REGISTRY_TABLE_H
#define PROTOCOL_TRANSFER_REGISTRY_TABLE_H

#include "protocol/transfer/wire.h"

#define REGISTRY_TTL_MAX_NS ((uint64_t)3600 * 1000000000)

struct registry_table;

enum registry_change {
	REGISTRY_NOTHING,  /* it is there still, or never was */
	REGISTRY_CAME,	   /* it is new */
	REGISTRY_REPLACED, /* another process than before is at its endpoint */
	REGISTRY_LEFT,	   /* it was there, and wants to be forgotten */
	REGISTRY_FULL,	   /* it is new, and there is no room */
};

/* Nobody. NULL: out of memory. */
struct registry_table *registry_table_new(void) MUST_CHECK;
void registry_table_free(struct registry_table *t);

/* An ANNOUNCE that wire_parse took. Those whose time is over should be gone by now (registry_table_expire). */
enum registry_change registry_table_announce(struct registry_table *t,
					     const struct wire_announce *a,
					     uint64_t now_ns) MUST_CHECK;

/* Forgets one worker whose time is over, and says which; false: there is none. */
bool registry_table_expire(struct registry_table *t, uint64_t now_ns,
			   struct wire_announce *ret) MUST_CHECK;

/* When registry_table_expire has to be called again; UINT64_MAX: there is nobody. */
uint64_t registry_table_deadline(const struct registry_table *t);

/* Answers a LIST: those of a role and a model whose time is not over. Borrowed until the next call of anything here. */
void registry_table_list(struct registry_table *t, const struct wire_list *asked, uint64_t now_ns,
			 struct wire_peers *ret);

uint32_t registry_table_count(const struct registry_table *t);

#endif
