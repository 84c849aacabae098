/* `tigon cache`: shows a server's prefix cache (GET /cache) as a tree, or empties it (POST /cache/flush).
 *
 *     0-64  1 page, state (message), 12 hits
 *     ├─ 64-192  2 pages, state (prompt), 3 hits
 *     │  192-256  1 page, state (decode), decoded
 *     └─ 64-128  1 page
 *
 * Lines with totals come first. Then comes a line for each node: the range of its tokens in a prompt, then its content.
 * An only child stands below its parent with the same indentation. Where prompts differ, the children are indented. A
 * line may also end with "in use" and, with --tokens, with token ids. The line "with a cache_salt:" stands above the
 * nodes of each cache_salt. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "daemon/cli/command.h"
#include "daemon/cli/http_client.h"

#define DEFAULT_URL "http://127.0.0.1:8080"

/* LINE_SHOWN: the most bytes that an error shows of the first line of a foreign answer. */
enum { TIMEOUT_MS = 30000, IDS_SHOWN = 16, LINE_SHOWN = 200 };

struct cache_options {
	/* borrowed from argv; limit NULL: the server's default; api_key_file NULL: no key; tls_ca NULL: those of the
	 * system */
	const char *url, *limit, *api_key_file, *tls_ca;
	bool flush, tokens, json;
};

/* A node of the cache's tree. `child` is its first child, `next` its next sibling. child_end points to the pointer that
 * will point to the next child. */
struct node {
	json_t *v; /* borrowed from the answer */
	int64_t id;
	struct node *child, **child_end, *next;
};

static const struct option_def table[] = {
	{"url", "URL", OPTION_TEXT, offsetof(struct cache_options, url),
	 .initial_text = DEFAULT_URL, .text = "the server"},
	{"api-key-file", "FILE", OPTION_TEXT, offsetof(struct cache_options, api_key_file),
	 .initial_text = "none", .text = "a file of keys, of which the first is sent"},
	{"tls-ca", "FILE", OPTION_TEXT, offsetof(struct cache_options, tls_ca),
	 .initial_text = "those of the system",
	 .text = "certificates to trust with https://, in PEM"},
	{"limit", "N", OPTION_TEXT, offsetof(struct cache_options, limit), .initial_text = "1000",
	 .text = "nodes to show"},
	{"tokens", NULL, OPTION_FLAG, offsetof(struct cache_options, tokens),
	 .text = "show the first token ids of each node"},
	{"json", NULL, OPTION_FLAG, offsetof(struct cache_options, json),
	 .text = "print the server's answer unchanged"},
};

/* ---- asking ---- */

/* Reads a complete answer. 0: its status is 200, and *ret is its JSON, a new reference. -EPROTO: it is any other
 * answer; e has its status, and the sentence of its error, or the first line of an answer that is no JSON. */
static int parse_answer(const struct stream *s, json_t **ret, struct err *e)
{
	json_t *v = json_loadb(buf_str(&s->body), s->body.len, 0, NULL);
	const char *message, *text = buf_str(&s->body);

	if (s->status == 200 && json_is_object(v)) {
		*ret = v;
		return 0;
	}
	message = json_string_value(json_object_get(json_object_get(v, "error"), "message"));
	if (message)
		err_set(e, EPROTO, "status %d: %s", s->status, message);
	else
		err_set(e, EPROTO, "status %d: the answer is not tigond's: \"%.*s\"", s->status,
			(int)MIN(strcspn(text, "\r\n"), (size_t)LINE_SHOWN), text);
	json_decref(v);
	return -EPROTO;
}

static int ask_server(const struct cache_options *o, json_t **ret, struct err *e)
{
	struct stream s;
	struct target t;
	char path[128];
	bool fresh;
	int r = target_parse(o->url, o->tls_ca, &t, e);

	if (r < 0)
		return r;
	if ((r = target_key(&t, o->api_key_file, e)) < 0)
		goto out;
	snprintf(path, sizeof(path), "/cache%s?tokens=%d%s%s", o->flush ? "/flush" : "", o->tokens,
		 o->limit ? "&limit=" : "", o->limit ? o->limit : "");
	stream_init(&s, NULL, NULL);
	r = stream_send(&s, &t, o->flush ? "POST" : "GET", path, "", &fresh, e);
	while (r == 0) {
		struct pollfd p = {.fd = s.fd, .events = (short)stream_events(&s)};

		r = poll(&p, 1, TIMEOUT_MS) > 0
			    ? stream_io(&s, e)
			    : err_set(e, ETIMEDOUT, "the server does not answer");
	}
	if (r < 0) {
		const struct err why = *e;

		err_set(e, why.code, "%s: %s; --url names another", o->url, why.text);
	}
	if (r > 0)
		r = parse_answer(&s, ret, e);
	stream_release(&s);
out:
	target_release(&t);
	return r;
}

/* ---- showing ---- */

static int64_t number(const json_t *v, const char *name)
{
	return json_integer_value(json_object_get(v, name));
}

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

static void print_node(const struct node *n)
{
	const char *checkpoint = json_string_value(json_object_get(n->v, "checkpoint"));
	const char *computed = json_string_value(json_object_get(n->v, "computed"));
	const json_t *ids = json_object_get(n->v, "token_ids");
	int64_t pages = number(n->v, "pages"), hits = number(n->v, "hits");
	int64_t depth = number(n->v, "depth"), tokens = number(n->v, "tokens");

	printf("%lld-%lld  %lld page%s", (long long)(depth - tokens), (long long)depth,
	       (long long)pages, plural(pages));
	if (checkpoint) {
		printf(", state (");
		print_plain(stdout, checkpoint);
		putchar(')');
	}
	if (hits)
		printf(", %lld hit%s", (long long)hits, plural(hits));
	if (computed && strcmp(computed, "prefilled") != 0) {
		printf(", ");
		print_plain(stdout, computed);
	}
	if (number(n->v, "locks"))
		printf(", in use");
	for (size_t i = 0; i < json_array_size(ids) && i < IDS_SHOWN; i++)
		printf("%s%lld", i ? " " : "  [",
		       (long long)json_integer_value(json_array_get(ids, i)));
	if (json_array_size(ids))
		puts(json_array_size(ids) > IDS_SHOWN ? " ...]" : "]");
	else
		putchar('\n');
}

/* Prints siblings with all their descendants. margin: the text to the left of each line. */
static void print_list(const struct node *list, struct buf *margin)
{
	size_t len = margin->len;
	bool alone = !list->next;

	for (const struct node *n = list; n; n = n->next) {
		const struct node *at = n;

		printf("%s%s", buf_str(margin), alone ? "" : n->next ? "├─ " : "└─ ");
		print_node(at);
		buf_puts(margin, alone ? "" : n->next ? "│  " : "   ");
		while (at->child && !at->child->next) {
			at = at->child;
			printf("%s", buf_str(margin));
			print_node(at);
		}
		if (at->child)
			print_list(at->child, margin);
		margin->len = len;
		if (margin->data)
			margin->data[len] = 0;
	}
}

static int compare_nodes(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Links children to their parents, and the roots to a list that begins at *ret. The answer may have its nodes in any
 * order; siblings stay in the answer's order. -EPROTO: two nodes have the same id. */
static int link_nodes(struct node *nodes, size_t n, const json_t *array, struct node **ret,
		      struct err *e)
{
	struct node *root = NULL, **root_end = &root;

	for (size_t i = 0; i < n; i++) {
		nodes[i].v = json_array_get(array, i);
		nodes[i].id = number(nodes[i].v, "id");
	}
	qsort(nodes, n, sizeof(*nodes), compare_nodes);
	for (size_t i = 1; i < n; i++)
		if (nodes[i].id == nodes[i - 1].id)
			return err_set(e, EPROTO,
				       "the server's answer is no tree: node %lld is twice in it",
				       (long long)nodes[i].id);
	for (size_t i = 0; i < n; i++)
		nodes[i].child_end = &nodes[i].child;
	for (size_t i = 0; i < n; i++) {
		struct node key = {.id = number(json_array_get(array, i), "id")}, *node, *parent;

		node = bsearch(&key, nodes, n, sizeof(*nodes), compare_nodes);
		key.id = number(json_array_get(array, i), "parent");
		parent = bsearch(&key, nodes, n, sizeof(*nodes), compare_nodes);
		if (parent && parent != node) {
			*parent->child_end = node;
			parent->child_end = &node->next;
		} else {
			*root_end = node;
			root_end = &node->next;
		}
	}
	*ret = root;
	return 0;
}

/* Prints a line for a tier below the device, unless the tier is empty. */
static void print_tier(const json_t *totals, const char *name, const char *where)
{
	const json_t *tier = json_object_get(json_object_get(totals, "tiers"), name);
	long long items = (long long)number(tier, "items");

	if (items > 0)
		printf("%s: %lld pages and states, %.1f MiB\n", where, items,
		       (double)number(tier, "bytes") / 1048576);
}

static void print_totals(const json_t *v)
{
	const json_t *t = json_object_get(v, "totals");
	int64_t shown = (int64_t)json_array_size(json_object_get(v, "nodes"));

	printf("%lld tokens in %lld pages, %lld states, %lld nodes; %.1f of %.1f MiB in use",
	       (long long)number(t, "tokens"), (long long)number(t, "pages"),
	       (long long)number(t, "states"), (long long)number(t, "nodes"),
	       (double)number(t, "used_bytes") / 1048576,
	       (double)number(t, "budget_bytes") / 1048576);
	if (json_is_true(json_object_get(v, "truncated")))
		printf("; %lld nodes are shown", (long long)shown);
	putchar('\n');
	print_tier(t, "host", "in host memory");
	print_tier(t, "disk", "on disk");
}

static int show(const json_t *v, struct err *e)
{
	const json_t *array = json_object_get(v, "nodes");
	size_t n = json_array_size(array);
	struct node *nodes = calloc(n + 1, sizeof(*nodes)), *root = NULL, *next;
	struct buf margin;
	int64_t space = 0;
	int r;

	if (!nodes)
		return err_no_memory(e);
	r = link_nodes(nodes, n, array, &root, e);
	if (r < 0) {
		free(nodes);
		return r;
	}
	print_totals(v);
	buf_init(&margin, 1 << 20);
	/* The roots of one space (the prompts with one cache_salt) follow each other in the list. Each round cuts the
	 * roots of one space off the list and prints them. */
	for (; root; root = next) {
		struct node *last = root;

		space = number(root->v, "space");
		while (last->next && number(last->next->v, "space") == space)
			last = last->next;
		next = last->next;
		last->next = NULL;
		if (space)
			printf("with a cache_salt:\n");
		print_list(root, &margin);
	}
	buf_release(&margin);
	free(nodes);
	return 0;
}

/* Reads the command line. -ECANCELED: it has --help, and the help was printed. */
static int parse_options(int argc, char **argv, struct cache_options *o, struct err *e)
{
	int r;

	*o = (struct cache_options){.url = DEFAULT_URL,
				    .flush = argc > 1 && !strcmp(argv[1], "flush")};
	r = option_table_command(table, ARRAY_SIZE(table), "cache [flush] [--name value ...]",
				 argc - o->flush, argv + o->flush, o, e);
	if (!r && o->limit && o->limit[strspn(o->limit, "0123456789")])
		return err_set(e, EINVAL, "--limit: \"%s\" is not a whole number", o->limit);
	return r;
}

int cli_cache(int argc, char **argv, struct err *e)
{
	struct cache_options o;
	json_t *answer = NULL;
	int r = parse_options(argc, argv, &o, e);

	if (r == 0)
		r = ask_server(&o, &answer, e);
	if (r == 0 && o.json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		putchar('\n');
	} else if (r == 0 && o.flush) {
		const json_t *f = json_object_get(answer, "flushed");

		printf("flushed: %lld pages, %lld states\n", (long long)number(f, "pages"),
		       (long long)number(f, "states"));
	} else if (r == 0) {
		r = show(answer, e);
	}
	json_decref(answer);
	return r;
}
