#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/cli/command.h"
#include "daemon/cli/inspect/inspect.h"
#include "daemon/engine_options.h"
#include "engine/cache_size.h"
#include "engine/checkpoint/families/family.h"

static const char *const kinds[LAYER_KINDS] = {
	[LAYER_ATTENTION] = "attention",    [LAYER_DELTA] = "Gated DeltaNet",
	[LAYER_MOE] = "mixture of experts", [LAYER_DENSE] = "dense MLP",
	[LAYER_SLIDING] = "sliding window",
};

static double bits(uint64_t bytes, uint64_t elements)
{
	return elements ? (double)bytes * 8 / (double)elements : 0;
}

static uint64_t all_bytes(const struct inspection *i)
{
	uint64_t bytes = 0;

	for (size_t k = 0; k < i->n_types; k++)
		bytes += i->types[k].bytes;
	return bytes;
}

/* Returns whether weights of the group's type are served. In a model that is served every type is one, perhaps of codes
 * and scales that are read together. */
static bool is_served(const struct inspection *i, const struct tensor_group *g)
{
	return !i->refused.code || g->first->type->to_float;
}

/* ---- for people ---- */

/* Prints `yes`, or why not. */
static void print_reason(const char *name, const char *yes, bool good, const struct err *why)
{
	printf("%-14s ", name);
	print_plain(stdout, good ? yes : why->text);
	putchar('\n');
}

static void print_model(const struct inspection *i)
{
	const struct model_config *c = i->config;
	const char *between = "";

	print_plain(stdout, i->path);
	printf(": %s, %s\n", i->format, size_text(all_bytes(i)).s);
	if (c) {
		printf("%-14s %s\n%-14s %u: ", "family", c->family->name, "layers", c->n_layers);
		for (int k = 0; k < LAYER_KINDS; k++)
			if (c->n_layers_of[k]) {
				printf("%s%u %s", between, c->n_layers_of[k], kinds[k]);
				between = ", ";
			}
		printf("\n%-14s %llu\n", "parameters", (unsigned long long)i->n_parameters);
		printf("%-14s %u tokens\n%-14s %u tokens\n", "context", c->max_position_embeddings,
		       "vocabulary", c->vocab_size);
	}
	print_reason("tokenizer", "found", i->tokenizer, &i->no_tokenizer);
	print_reason("chat template", "found", i->chat_template, &i->no_template);
	print_reason("served", "yes", !i->refused.code, &i->refused);
}

static void print_groups(const struct inspection *i)
{
	int width = (int)strlen("tensors");

	for (size_t k = 0; k < i->n_groups; k++)
		width = MAX(width, (int)strlen(i->groups[k].name));
	printf("\n%-*s %7s %-8s %-18s %14s %8s\n", width, "tensors", "number", "type", "shape",
	       "bytes", "bits");
	for (size_t k = 0; k < i->n_groups; k++) {
		const struct tensor_group *g = &i->groups[k];
		char shape[192];

		tensor_print_shape(shape, sizeof(shape), g->first->shape, g->first->n_dims);
		printf("%-*s %7llu %-8s %-18s %14llu %8.4g\n", width, g->name,
		       (unsigned long long)g->n, g->first->type->name, shape,
		       (unsigned long long)g->bytes, bits(g->bytes, g->elements));
	}
	printf("\n%-8s %7s %16s %12s %8s\n", "type", "number", "elements", "bytes", "bits");
	for (size_t k = 0; k < i->n_types; k++)
		printf("%-8s %7llu %16llu %12s %8.4g\n", i->types[k].name,
		       (unsigned long long)i->types[k].n, (unsigned long long)i->types[k].elements,
		       size_text(i->types[k].bytes).s,
		       bits(i->types[k].bytes, i->types[k].elements));
	for (size_t k = 0; k < i->n_groups; k++)
		if (!is_served(i, &i->groups[k])) {
			printf("%s has type %s, in which weights are not served (",
			       i->groups[k].first->name, i->groups[k].first->type->name);
			print_plain(stdout, i->groups[k].first->file);
			puts(")");
		}
}

static void print_fits(const struct inspection *i)
{
	const char *before = NULL;

	if (i->no_device.code) {
		printf("\nmemory is not planned: ");
		print_plain(stdout, i->no_device.text);
		putchar('\n');
	}
	for (size_t k = 0; k < i->n_fits; k++) {
		const struct inspect_fit *f = &i->fits[k];
		const struct engine_needs *n = &f->needs;

		if (!before || strcmp(before, n->device_name) != 0) {
			printf("\n%s, %s for the model\n", n->device_name, size_text(f->memory).s);
			printf("%-9s %-8s %12s %12s %12s %12s %12s %9s  sequences of %u\n", "dtype",
			       "kernels", "weights", "work space", "KV a token", "a state", "left",
			       "tokens", i->context);
		}
		before = n->device_name;
		printf("%-9s %-8s %12s %12s %12llu %12llu", engine_dtype_names[f->dtype],
		       n->kernels, size_text(n->weight_bytes).s, size_text(n->scratch_bytes).s,
		       (unsigned long long)(n->page_bytes / INSPECT_PAGE),
		       (unsigned long long)n->slot_bytes);
		if (!f->left) {
			printf("  the weights do not fit\n");
			continue;
		}
		printf(" %12s %9llu  %llu\n", size_text(f->left).s, (unsigned long long)f->tokens,
		       (unsigned long long)f->sequences);
		if (n->may_save)
			printf("%-9s when they are loaded, the weights may take up to %s less\n",
			       "", size_text(n->may_save).s);
	}
}

void inspect_print(const struct inspection *i)
{
	print_model(i);
	print_groups(i);
	print_fits(i);
}

/* ---- for programs ---- */

static json_t *shape_of(const struct tensor *t)
{
	json_t *list = json_array();

	for (uint32_t d = 0; d < t->n_dims; d++)
		json_array_append_new(list, json_integer((json_int_t)t->shape[d]));
	return list;
}

static json_t *groups_of(const struct inspection *i, const struct tensor_group *g, size_t n,
			 bool types)
{
	json_t *list = json_array();

	for (; n; n--, g++) {
		json_t *v = json_pack("{s:s, s:I, s:I, s:I, s:f}", types ? "type" : "name", g->name,
				      "number", (json_int_t)g->n, "elements",
				      (json_int_t)g->elements, "bytes", (json_int_t)g->bytes,
				      "bits", bits(g->bytes, g->elements));

		if (!types) {
			json_object_set_new(v, "type", json_string(g->first->type->name));
			json_object_set_new(v, "shape", shape_of(g->first));
			json_object_set_new(v, "served", json_boolean(is_served(i, g)));
			json_object_set_new(v, "file", json_string(g->first->file));
		}
		json_array_append_new(list, v);
	}
	return list;
}

static json_t *fits_of(const struct inspection *i)
{
	json_t *list = json_array();

	for (size_t k = 0; k < i->n_fits; k++) {
		const struct inspect_fit *f = &i->fits[k];
		const struct engine_needs *n = &f->needs;

		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
				  "device", n->device_name, "kernels", n->kernels, "dtype",
				  engine_dtype_names[f->dtype], "memory_bytes",
				  (json_int_t)f->memory, "weight_bytes",
				  (json_int_t)n->weight_bytes, "may_save_bytes",
				  (json_int_t)n->may_save, "work_space_bytes",
				  (json_int_t)n->scratch_bytes, "kv_bytes_per_token",
				  (json_int_t)(n->page_bytes / INSPECT_PAGE),
				  "state_bytes_per_sequence", (json_int_t)n->slot_bytes,
				  "cache_bytes", (json_int_t)f->left, "tokens",
				  (json_int_t)f->tokens, "sequences", (json_int_t)f->sequences));
	}
	return list;
}

static void add_model(json_t *top, const struct inspection *i)
{
	const struct model_config *c = i->config;
	json_t *layers = json_object();

	for (int k = 0; k < LAYER_KINDS; k++)
		json_object_set_new(layers, kinds[k], json_integer(c->n_layers_of[k]));
	json_object_set_new(top, "family", json_string(c->family->name));
	json_object_set_new(top, "parameters", json_integer((json_int_t)i->n_parameters));
	json_object_set_new(top, "layers", layers);
	json_object_set_new(top, "context", json_integer(c->max_position_embeddings));
	json_object_set_new(top, "vocabulary", json_integer(c->vocab_size));
}

/* Adds a truth value, and below name_reason why it is false. */
static void add_text(json_t *top, const char *name, bool good, const struct err *why)
{
	char reason[64];

	snprintf(reason, sizeof(reason), "%s_reason", name);
	json_object_set_new(top, name, json_boolean(good));
	if (!good)
		json_object_set_new(top, reason, json_string(why->text));
}

int inspect_print_json(const struct inspection *i, struct err *e)
{
	json_t *top = json_pack("{s:s, s:s, s:I}", "model", i->path, "format", i->format, "bytes",
				(json_int_t)all_bytes(i));
	int r;

	if (i->config)
		add_model(top, i);
	add_text(top, "tokenizer", i->tokenizer, &i->no_tokenizer);
	add_text(top, "chat_template", i->chat_template, &i->no_template);
	add_text(top, "served", !i->refused.code, &i->refused);
	json_object_set_new(top, "tensors", groups_of(i, i->groups, i->n_groups, false));
	json_object_set_new(top, "types", groups_of(i, i->types, i->n_types, true));
	json_object_set_new(top, "sequence_tokens", json_integer(i->context));
	json_object_set_new(top, "memory", fits_of(i));
	r = json_dumpf(top, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	json_decref(top);
	putchar('\n');
	return r < 0 ? err_set(e, EIO, "the answer could not be written as JSON") : 0;
}
