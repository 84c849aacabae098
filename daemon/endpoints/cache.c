/* GET /cache: the prefix cache as it was between two steps.
 *
 * The tree belongs to the engine thread, which must not be busy for long between two steps. So the engine thread copies
 * at most `limit` nodes and IDS_MAX token ids, and the http thread writes the JSON from the copy. Parents come before
 * their children, so no node is copied without its parent. `truncated` says whether nodes were left out; the totals
 * count all nodes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "daemon/request/call.h"
#include "daemon/steps/loop.h"
#include "protocol/openai/writer.h"

enum {
	LIMIT = 1000, /* nodes to copy, unless the query has another number */
	LIMIT_MAX = 10000,
	IDS_MAX = 1 << 18,
};

struct tree {
	/* written by http: the query */
	uint64_t limit;
	bool tokens; /* the query wants token ids, too */
	/* written by engine: the copy */
	uint32_t page_tokens, n_pages, n_slots;
	struct metrics_steps stats;
	bool has_below;		   /* there is host memory or a disk below the device */
	struct prefix_view *nodes; /* [n_nodes]; the pointers in them are no longer valid */
	size_t n_nodes, cap;
	int32_t *ids; /* [n_ids] token ids, one node after the other; NULL: not wanted */
	size_t n_ids;
	bool truncated, failed;
	/* written by http: the progress of the answer */
	bool begun;
	size_t next, next_id; /* index of the next node, and of its first token id */
	/* The number of the next node's space, for clients: 0 without a salt, else the id of the space's first node
	 * in the copy (the nodes of a space come one after the other). Clients must not see the space's own id. It is
	 * a hash of the salt, and a client could hash one salt after the other until it finds this one. */
	uint64_t space;
};

static void release(void *own)
{
	struct tree *t = own;

	free(t->nodes);
	free(t->ids);
	free(t);
}

static int ask(struct server *s, const char *name, const char *const *values, void **ret_own,
	       struct err *e)
{
	const char *limit = values[0], *tokens = values[1];
	uint64_t n = LIMIT;
	struct tree *t;

	if (limit && (option_size(limit, &n) < 0 || n < 1 || n > LIMIT_MAX))
		return err_param(e, EINVAL, "limit", "limit is \"%.40s\", but must be 1 to %d",
				 limit, LIMIT_MAX);
	if (tokens && strcmp(tokens, "0") != 0 && strcmp(tokens, "1") != 0)
		return err_param(e, EINVAL, "tokens", "tokens is \"%.40s\", but must be 0 or 1",
				 tokens);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(e);
	t->limit = n;
	t->tokens = tokens && tokens[0] == '1';
	*ret_own = t;
	return 0;
}

static const char *const kinds[] = {
	[PREFIX_CHECKPOINT_PROMPT] = "prompt",
	[PREFIX_CHECKPOINT_MESSAGE] = "message",
	[PREFIX_CHECKPOINT_CHUNK] = "chunk",
	[PREFIX_CHECKPOINT_DECODE] = "decode",
};

static bool see(void *arg, const struct prefix_view *v)
{
	struct tree *t = arg;

	if (t->n_nodes == t->limit || (t->tokens && v->n_tokens > IDS_MAX - t->n_ids)) {
		t->truncated = true;
		return false;
	}
	t->failed = !array_grow(t->nodes, t->cap, t->n_nodes + 1);
	if (t->failed)
		return false;
	t->nodes[t->n_nodes++] = *v;
	if (t->tokens) {
		memcpy(t->ids + t->n_ids, v->tokens, v->n_tokens * sizeof(*t->ids));
		t->n_ids += v->n_tokens;
	}
	return true;
}

static void visit(struct call *c, struct loop *l) ON(role_engine)
{
	const struct server *s = c->server;
	struct tree *t = c->http.own;
	struct buf none = {0};
	struct err e = {0};

	t->page_tokens = (uint32_t)s->options.page_size;
	t->n_pages = s->info.n_pages;
	t->n_slots = s->info.slot_bytes ? s->info.n_slots : 0;
	t->stats = *loop_stats(l);
	t->has_below = options_want_tiers(&s->options);
	if (t->tokens) {
		t->ids = calloc(IDS_MAX, sizeof(*t->ids));
		t->failed = !t->ids;
	}
	if (!t->failed)
		prefix_cache_walk(scheduler_cache(loop_scheduler(l)), see, t);
	c->http.own_bytes = t->cap * sizeof(*t->nodes) + (t->ids ? IDS_MAX * sizeof(*t->ids) : 0);
	if (t->failed) {
		err_no_memory(&e);
		call_fail(c, &e);
	} else {
		call_reply(c, &none);
	}
}

static bool same_space(const struct prefix_view *a, const struct prefix_view *b)
{
	return a->space.id[0] == b->space.id[0] && a->space.id[1] == b->space.id[1];
}

static const char *computed(uint64_t origin)
{
	if (origin == PREFIX_PREFILLED)
		return "prefilled";
	return origin & 1 ? "decoded" : "mixed";
}

static void write_node(const struct tree *t, const struct prefix_view *v, struct buf *out)
{
	buf_printf(out,
		   "{\"id\":%" PRIu64 ",\"parent\":%" PRIu64 ",\"space\":%" PRIu64
		   ",\"tokens\":%u,\"depth\":%u,\"pages\":%u",
		   v->id, v->parent, t->space, v->n_tokens, v->depth, v->n_pages);
	if (v->slot == POOL_NONE)
		buf_puts(out, ",\"slot\":null,\"checkpoint\":null");
	else
		buf_printf(out, ",\"slot\":%u,\"checkpoint\":\"%s\"", v->slot, kinds[v->kind]);
	buf_printf(out,
		   ",\"tier\":\"device\",\"computed\":\"%s\",\"hits\":%" PRIu64 ",\"age\":%" PRIu64
		   ",\"locks\":%u",
		   computed(v->origin), v->hits, v->age, v->locks);
	if (t->tokens) {
		buf_puts(out, ",\"token_ids\":");
		writer_ids(out, t->ids + t->next_id, v->n_tokens);
	}
	buf_putc(out, '}');
}

/* Writes the statistics of host memory and disk, or null if the server uses neither. */
static void write_tiers(const struct tree *t, struct buf *out)
{
	const struct store_stats *b = &t->stats.store;

	if (!t->has_below) {
		buf_puts(out, "null");
		return;
	}
	buf_printf(out,
		   "{\"host\":{\"items\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"hits\":%" PRIu64
		   ",\"evicted\":%" PRIu64 "}",
		   b->host_items, b->host_bytes, b->host_hits, b->host_evicted);
	buf_printf(out,
		   ",\"disk\":{\"status\":\"%s\",\"items\":%" PRIu64 ",\"bytes\":%" PRIu64
		   ",\"hits\":%" PRIu64 ",\"evicted\":%" PRIu64 ",\"queued\":%" PRIu64
		   ",\"written\":%" PRIu64 ",\"unwritten\":%" PRIu64 ",\"damaged\":%" PRIu64 "}",
		   store_disk_name(b->disk), b->disk_items, b->disk_bytes, b->disk_hits,
		   b->disk_evicted, b->queued_items, b->written_items, b->unwritten_items,
		   b->damaged);
	buf_printf(out, ",\"loads\":%" PRIu64 ",\"loads_failed\":%" PRIu64 "}",
		   t->stats.scheduler.loads_begun, t->stats.scheduler.loads_failed);
}

static void write_totals(const struct tree *t, struct buf *out)
{
	const struct prefix_stats *c = &t->stats.scheduler.cache;

	buf_printf(out,
		   "{\"nodes\":%" PRIu64 ",\"spaces\":%" PRIu64 ",\"tokens\":%" PRIu64
		   ",\"pages\":%" PRIu64 ",\"states\":%" PRIu64 ",\"evictable_pages\":%" PRIu64
		   ",\"evictable_states\":%" PRIu64,
		   c->nodes, c->spaces, t->stats.tree_tokens, c->tree_pages, c->tree_slots,
		   c->evictable_pages, c->evictable_slots);
	buf_printf(out,
		   ",\"evicted_pages\":%" PRIu64 ",\"evicted_states\":%" PRIu64
		   ",\"evicted_unhit_states\":%" PRIu64 ",\"used_bytes\":%" PRIu64
		   ",\"budget_bytes\":%" PRIu64,
		   c->evicted_pages, c->evicted_slots, c->evicted_unhit_slots, c->used_bytes,
		   t->stats.budget_bytes);
	buf_printf(out,
		   ",\"pool_pages\":%u,\"pool_free_pages\":%" PRIu64 ",\"pool_states\":%u,"
		   "\"pool_free_states\":%" PRIu64 ",\"tiers\":",
		   t->n_pages, c->free_pages, t->n_slots, c->free_slots);
	write_tiers(t, out);
	buf_putc(out, '}');
}

/* Writes the next node, and moves on to the one behind it. */
static void write_next(struct tree *t, struct buf *out)
{
	const struct prefix_view *v = &t->nodes[t->next];

	if (!v->space.id[0] && !v->space.id[1])
		t->space = 0;
	else if (!t->next || !same_space(v, v - 1))
		t->space = v->id;
	if (t->next)
		buf_putc(out, ',');
	write_node(t, v, out);
	if (t->ids)
		t->next_id += v->n_tokens;
	t->next++;
}

static bool write(void *own, size_t enough, struct buf *out)
{
	struct tree *t = own;

	if (!t->begun) {
		buf_printf(out, "{\"page_tokens\":%u,\"totals\":", t->page_tokens);
		write_totals(t, out);
		buf_printf(out, ",\"truncated\":%s,\"nodes\":[", t->truncated ? "true" : "false");
		t->begun = true;
	}
	while (t->next < t->n_nodes && out->len < enough)
		write_next(t, out);
	if (t->next < t->n_nodes)
		return false;
	buf_puts(out, "]}");
	return true;
}

const struct endpoint endpoint_cache = {
	.path = "/cache",
	.admin = true,
	.guarded = true,
	.worker = true,
	.id = "cache-",
	.arguments = {"limit", "tokens"},
	.ask = ask,
	.visit = visit,
	.write = write,
	.release = release,
};
