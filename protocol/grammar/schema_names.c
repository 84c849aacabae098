/* The names of schemas: $id, $anchor and $dynamicAnchor, and the schemas that $ref and $dynamicRef name.
 *
 * A resource is the whole schema or a schema inside it with an $id; its name is the $id as an absolute URI, if the
 * whole schema's $id is one. s->named has each resource by its name and each anchor by RESOURCE#ANCHOR; s->bases has
 * the resource of each schema, and is needed only if there are several. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mix.h"
#include "protocol/grammar/schema.h"
#include "protocol/word.h"

enum { URI_MAX = 4096, SCHEMAS_MAX = 1 << 19 };

struct base {
	struct map_node node;
	const json_t *schema;
	const char *uri;		 /* of its resource */
	json_t *target, *dynamic_target; /* of $ref and $dynamicRef; NULL: not looked for yet */
};

/* ---- URIs (RFC 3986, section 5.2) ---- */

/* Returns the length of a scheme with its colon; 0: there is none. */
static size_t scheme_length(const char *uri)
{
	size_t n = 0;

	if (!isalpha((unsigned char)uri[0]))
		return 0;
	while (isalnum((unsigned char)uri[n]) || (uri[n] && strchr("+-.", uri[n])))
		n++;
	return uri[n] == ':' ? n + 1 : 0;
}

/* Returns the length of scheme and authority. */
static size_t root_length(const char *uri)
{
	size_t n = scheme_length(uri);

	if (uri[n] == '/' && uri[n + 1] == '/')
		n += 2 + strcspn(uri + n + 2, "/?#");
	return n;
}

/* Removes the segments . and .. from the path that begins at `path`. */
static void remove_dots(char *path)
{
	char *to = path, *at = path;

	while (*at && *at != '?' && *at != '#') {
		size_t n = strcspn(at + 1, "/?#") + 1; /* a slash and its segment */
		bool last = at[n] != '/';

		if (*at == '/' && n == 2 && at[1] == '.') {
			if (last)
				*to++ = '/';
		} else if (*at == '/' && n == 3 && at[1] == '.' && at[2] == '.') {
			while (to > path && *--to != '/')
				;
			if (last)
				*to++ = '/';
		} else {
			memmove(to, at, n);
			to += n;
		}
		at += n;
		if (last)
			break;
	}
	memmove(to, at, strlen(at) + 1);
}

/* Returns the absolute form of a reference, as a text in the arena. NULL: s has failed. */
static char *resolve(struct schemas *s, const char *base, const char *ref)
{
	size_t keep, root = root_length(base), n = strlen(ref);
	char *uri;

	if (scheme_length(ref))
		keep = 0;
	else if (ref[0] == '#' || !ref[0])
		keep = strcspn(base, "#");
	else if (ref[0] == '/' && ref[1] == '/')
		keep = scheme_length(base);
	else if (ref[0] == '/')
		keep = root;
	else if (ref[0] == '?')
		keep = strcspn(base, "?#");
	else
		for (keep = strcspn(base, "?#"); keep > root && base[keep - 1] != '/';)
			keep--;
	if (keep + n > URI_MAX && !s->r)
		s->r = err_set(s->e, E2BIG, "the JSON schema has a URI of more than %d bytes",
			       URI_MAX);
	uri = s->r ? NULL : arena_array(&s->arena, keep + n + 2, 1);
	if (!uri) {
		schema_no_memory(s);
		return NULL;
	}
	memcpy(uri, base, keep);
	if (keep && keep == root && strstr(base, "//") && ref[0] && !strchr("/?#", ref[0]))
		uri[keep++] = '/';
	memcpy(uri + keep, ref, n + 1);
	if (!schema_works(s, 8 + n / 64))
		return NULL;
	if (strncmp(uri, "urn:", 4) != 0)
		remove_dots(uri + root_length(uri));
	n = strlen(uri);
	if (n && uri[n - 1] == '#')
		uri[n - 1] = 0;
	return uri;
}

/* ---- finding the names ---- */

static struct base *base_of(struct schemas *s, const json_t *schema)
{
	uint64_t hash = mix64((uintptr_t)schema);

	for (struct map_node *n = map_first(&s->bases, hash); n; n = map_next(n)) {
		struct base *b = container_of(n, struct base, node);

		if (b->schema == schema)
			return b;
	}
	return NULL;
}

static void set_base(struct schemas *s, const json_t *schema, const char *uri)
{
	struct base *b;

	if (s->bases.n == SCHEMAS_MAX) {
		s->r = err_set(s->e, E2BIG, "the JSON schema has more than %d schemas inside",
			       SCHEMAS_MAX);
		return;
	}
	b = arena_alloc(&s->arena, sizeof(*b));
	if (!b || map_reserve(&s->bases) < 0) {
		schema_no_memory(s);
		return;
	}
	*b = (struct base){.schema = schema, .uri = uri};
	map_insert(&s->bases, &b->node, mix64((uintptr_t)schema));
}

static void set_name(struct schemas *s, const char *uri, json_t *schema)
{
	const json_t *other = json_object_get(s->named, uri);

	if (other && other != schema && !s->r)
		s->r = err_set(s->e, EINVAL,
			       "two schemas of the JSON schema have the name \"%.200s\"", uri);
	if (!s->r && json_object_set(s->named, uri, schema) < 0)
		schema_no_memory(s);
}

static void set_anchor(struct schemas *s, const char *base, json_t *schema, const char *keyword)
{
	const json_t *anchor = json_object_get(schema, keyword);
	const char *name = word_of(anchor);
	size_t n = strlen(base) + json_string_length(anchor) + 2;
	char *uri;

	if (!anchor || s->r)
		return;
	if (!name) {
		schema_wrong(s, keyword, "a string without a NUL");
		return;
	}
	uri = arena_array(&s->arena, n, 1);
	if (!uri) {
		schema_no_memory(s);
		return;
	}
	snprintf(uri, n, "%s#%s", base, name);
	set_name(s, uri, schema);
	if (!strcmp(keyword, "$dynamicAnchor")) {
		json_int_t count = json_integer_value(json_object_get(s->dynamic, name));

		if (json_object_set_new(s->dynamic, name, json_integer(count + 1)) < 0)
			schema_no_memory(s);
	}
}

/* The depth is bounded by that of the parser of JSON. */
static void walk(struct schemas *s, json_t *schema, const char *base)
{
	const json_t *id = json_object_get(schema, "$id");
	const char *keyword;
	json_t *value;

	if (!schema_works(s, 1) || !json_is_object(schema))
		return;
	if (id && !word_of(id))
		schema_wrong(s, "$id", "a string without a NUL");
	if (id && !s->r) {
		base = resolve(s, base, json_string_value(id));
		if (!base)
			return;
		if (strchr(base, '#'))
			schema_unsupported(s, "$id", " with a fragment");
		s->embedded = s->embedded || schema != s->root;
		set_name(s, base, schema);
	}
	set_anchor(s, base, schema, "$anchor");
	set_anchor(s, base, schema, "$dynamicAnchor");
	set_base(s, schema, base);
	json_object_foreach(schema, keyword, value)
	{
		enum schema_holds holds = schema_holds(keyword);
		const char *name;
		json_t *part;
		size_t i;

		if (holds == HOLDS_SCHEMA)
			walk(s, value, base);
		/* A schema may be a list: `items` may. */
		if (holds == HOLDS_LIST || holds == HOLDS_SCHEMA)
			json_array_foreach(value, i, part) walk(s, part, base);
		if (holds == HOLDS_MAP)
			json_object_foreach(value, name, part) walk(s, part, base);
	}
}

void schema_find_names(struct schemas *s)
{
	if (!json_object_get(s->root, "$id"))
		set_name(s, "", s->root);
	walk(s, s->root, "");
}

/* ---- references ---- */

static int hex(char c)
{
	return c >= '0' && c <= '9'		    ? c - '0'
	       : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
						    : -1;
}

/* Returns the place in `from` that a JSON pointer names, as it stands in a URI; NULL: there is none. */
static json_t *pointed(struct schemas *s, json_t *from, const char *pointer)
{
	char *part = arena_array(&s->cases, strlen(pointer) + 1, 1);

	if (!part)
		schema_no_memory(s);
	while (part && from && *pointer == '/') {
		size_t n = 0;

		for (pointer++; *pointer && *pointer != '/'; pointer++) {
			char c = *pointer;

			if (c == '%' && hex(pointer[1]) >= 0 && hex(pointer[2]) >= 0) {
				c = (char)(hex(pointer[1]) << 4 | hex(pointer[2]));
				pointer += 2;
			}
			part[n++] = c;
		}
		part[n] = 0;
		/* ~1 is a slash, ~0 a tilde. */
		for (char *at = part, *to = part; *to; at++) {
			if (*at == '~' && (at[1] == '0' || at[1] == '1'))
				*to++ = *++at == '0' ? '~' : '/';
			else
				*to++ = *at;
			if (!*at)
				break;
		}
		if (json_is_array(from)) {
			unsigned long i = strtoul(part, NULL, 10);
			bool digits = part[0] && strspn(part, "0123456789") == strlen(part) &&
				      (part[0] != '0' || !part[1]);

			from = digits ? json_array_get(from, i) : NULL;
		} else {
			from = json_object_get(from, part);
		}
	}
	return part && !*pointer ? from : NULL;
}

static json_t *find_target(struct schemas *s, const json_t *schema, const char *keyword,
			   const char *base)
{
	const char *ref = word_of(json_object_get(schema, keyword)), *fragment;
	json_t *resource, *target;
	char *uri, *document;

	if (!ref) {
		schema_wrong(s, keyword, "a string without a NUL");
		return NULL;
	}
	uri = resolve(s, base, ref);
	document = uri ? arena_strndup(&s->arena, uri, strcspn(uri, "#")) : NULL;
	if (!document) {
		schema_no_memory(s);
		return NULL;
	}
	fragment = strchr(uri, '#');
	resource = json_object_get(s->named, document);
	if (!resource) {
		schema_unsupported(s, keyword, " to a schema outside");
		return NULL;
	}
	if (!fragment || !fragment[1])
		target = resource;
	else if (fragment[1] == '/')
		target = pointed(s, resource, fragment + 1);
	else
		target = json_object_get(s->named, uri);
	if (!target && !s->r)
		s->r = err_set(s->e, EINVAL, "the JSON schema has nothing at the place \"%.100s\"",
			       ref);
	/* A dynamic reference is a plain one if there is no other schema that it could mean. */
	if (target && !strcmp(keyword, "$dynamicRef") && fragment && fragment[1] != '/') {
		const json_t *anchor = json_object_get(target, "$dynamicAnchor");

		if (anchor && !strcmp(json_string_value(anchor), fragment + 1) &&
		    json_integer_value(json_object_get(s->dynamic, fragment + 1)) > 1)
			schema_unsupported(s, keyword, " to an anchor that several schemas have");
	}
	return s->r ? NULL : target;
}

json_t *schema_target(struct schemas *s, const json_t *schema, const char *keyword)
{
	struct base *base = base_of(s, schema);
	json_t **known = NULL;

	if (!base && s->embedded) {
		schema_unsupported(s, keyword, " in a place that no keyword names, beside an $id");
		return NULL;
	}
	if (base)
		known = !strcmp(keyword, "$ref") ? &base->target : &base->dynamic_target;
	if (known && *known)
		return *known;
	if (!known)
		return find_target(s, schema, keyword, "");
	*known = find_target(s, schema, keyword, base->uri);
	return *known;
}
