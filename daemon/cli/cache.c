/*
 * `tigon cache`: GET /cache as a tree, or POST /cache/flush.
 *
 *     0-64      1 page, state (message), 12 hits
 *     ├─ 64-192   2 pages, state (prompt), 3 hits
 *     │  192-256  1 page, state (decode), decoded
 *     └─ 64-128   1 page
 *
 * A node with one child is followed by it at the same depth: only where prompts part does the tree
 * go to the right.
 */
#include "daemon/cli/cache.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/options.h"
#include "daemon/cli/bench/bench_http.h"

#define DEFAULT_URL "http://127.0.0.1:8080"

enum { ANSWER_MAX = 64 << 20, TIMEOUT_SECONDS = 30, IDS_SHOWN = 16 };

struct cache_options {
	const char *url, *limit; /* borrowed from argv; limit NULL: the server's */
	bool flush, tokens, json;
};

/* A node of the answer and its place in the tree. */
struct node {
	json_t *v; /* borrowed */
	int64_t id;
	struct node *child, **child_end, *next;
};

static const struct option_def table[] = {
	{"url", "URL", OPTION_TEXT, offsetof(struct cache_options, url),
	 .initial_text = DEFAULT_URL, .text = "the server"},
	{"limit", "N", OPTION_TEXT, offsetof(struct cache_options, limit), .initial_text = "1000",
	 .text = "nodes to show"},
	{"tokens", NULL, OPTION_FLAG, offsetof(struct cache_options, tokens),
	 .text = "with the first token ids of each node"},
	{"json", NULL, OPTION_FLAG, offsetof(struct cache_options, json),
	 .text = "the server's answer as it is"},
};

/* ---- asking ---- */

static int connect_to(const struct target *t, struct err *e)
{
	struct timeval timeout = {.tv_sec = TIMEOUT_SECONDS};
	int fd = socket(t->family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_set(e, errno, "socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (const struct sockaddr *)&t->address, t->address_len) < 0) {
		int r = err_set(e, errno, "cannot connect to %s port %s: %s", t->host, t->port,
				strerror(errno));

		close(fd);
		return r;
	}
	return fd;
}

static int send_all(int fd, const char *data, size_t len, struct err *e)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "send: %s", strerror(errno));
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Until the server closes, as HTTP/1.0 has it. */
static int receive_all(int fd, struct buf *out, struct err *e)
{
	char piece[16384];

	for (;;) {
		ssize_t n = recv(fd, piece, sizeof(piece), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "recv: %s", strerror(errno));
		if (!n)
			return 0;
		buf_append(out, piece, (size_t)n);
		if (out->failed)
			return err_set(e, EFBIG, "the answer is too large");
	}
}

/* The JSON of an answer with status 200 (new), or its error's sentence. */
static int parse_answer(const struct buf *answer, json_t **ret, struct err *e)
{
	const char *text = buf_str(answer), *body = strstr(text, "\r\n\r\n");
	const char *message;
	json_error_t error;
	unsigned status = 0;
	json_t *v;

	if (sscanf(text, "HTTP/1.%*1u %3u", &status) != 1 || !body)
		return err_set(e, EPROTO, "the server does not speak HTTP");
	body += 4;
	v = json_loadb(body, answer->len - (size_t)(body - text), 0, &error);
	if (status == 200 && json_is_object(v)) {
		*ret = v;
		return 0;
	}
	message = json_string_value(json_object_get(json_object_get(v, "error"), "message"));
	err_set(e, EPROTO, "status %u: %s", status, message ? message : "no JSON");
	json_decref(v);
	return -EPROTO;
}

static int ask(const struct cache_options *o, json_t **ret, struct err *e)
{
	struct target t;
	struct buf out, in;
	int fd, r = target_parse(o->url, &t, e);

	if (r < 0)
		return r;
	fd = connect_to(&t, e);
	if (fd < 0)
		return fd;
	buf_init(&out, 4096);
	buf_init(&in, ANSWER_MAX);
	buf_printf(&out,
		   "%s %s/cache%s?tokens=%d%s%s HTTP/1.0\r\nHost: %s\r\nContent-Length: 0\r\n\r\n",
		   o->flush ? "POST" : "GET", t.prefix, o->flush ? "/flush" : "", o->tokens,
		   o->limit ? "&limit=" : "", o->limit ? o->limit : "", t.host);
	r = out.failed ? err_set(e, EINVAL, "--url or --limit is too long")
		       : send_all(fd, buf_str(&out), out.len, e);
	if (!r)
		r = receive_all(fd, &in, e);
	if (!r)
		r = parse_answer(&in, ret, e);
	buf_release(&out);
	buf_release(&in);
	close(fd);
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

/* What a server says, without what would steer the terminal: control characters, also those of two bytes in UTF-8
 * (U+0080 to U+009F), become question marks. */
static void print_plain(FILE *out, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		bool wide = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;

		fputc(*c < ' ' || *c == 0x7f || wide ? '?' : *c, out);
		c += wide;
	}
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

/* A list of siblings with all that is below; `margin` is what stands left of them. */
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

/* Children stand in the order of the answer under their parents, whatever that order is. */
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

/* A line for host memory or disk, where something is. */
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
		return err_set(e, ENOMEM, "out of memory");
	r = link_nodes(nodes, n, array, &root, e);
	if (r < 0) {
		free(nodes);
		return r;
	}
	print_totals(v);
	buf_init(&margin, 1 << 20);
	/* One list a space. */
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

/* -ECANCELED: --help was asked for, and printed. */
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

int cli_cache(int argc, char **argv)
{
	struct cache_options o;
	struct err e = {0};
	json_t *answer = NULL;
	int r = parse_options(argc, argv, &o, &e);

	if (r == -ECANCELED)
		return EXIT_SUCCESS;
	if (!r)
		r = ask(&o, &answer, &e);
	if (!r && o.json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		putchar('\n');
	} else if (!r && o.flush) {
		const json_t *f = json_object_get(answer, "flushed");

		printf("flushed: %lld pages, %lld states\n", (long long)number(f, "pages"),
		       (long long)number(f, "states"));
	} else if (!r) {
		r = show(answer, &e);
	}
	json_decref(answer);
	if (r < 0) {
		fputs("tigon cache: ", stderr);
		print_plain(stderr, e.text);
		fputc('\n', stderr);
	}
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
