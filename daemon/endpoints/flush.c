/* POST /cache/flush: empties the prefix cache, on the device and below it. */
#include <inttypes.h>

#include "base/log.h"
#include "daemon/request/call.h"
#include "daemon/steps/loop.h"

static void flush(struct call *c, struct loop *l) ON(role_engine)
{
	struct prefix_stats held;
	struct err e = {0};
	struct buf body;

	if (loop_flush(l, &held, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	log_info("%s: %" PRIu64 " pages and %" PRIu64 " states flushed", c->id, held.tree_pages,
		 held.tree_slots);
	buf_init(&body, 256);
	buf_printf(&body, "{\"flushed\":{\"pages\":%" PRIu64 ",\"states\":%" PRIu64 "}}",
		   held.tree_pages, held.tree_slots);
	call_reply(c, &body);
}

const struct endpoint endpoint_flush = {
	.path = "/cache/flush",
	.post = true,
	.admin = true,
	.guarded = true,
	.worker = true,
	.id = "flush-",
	.visit = flush,
};
