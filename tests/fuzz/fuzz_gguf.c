/* Bytes as one GGUF file. An accepted file must keep the promises of gguf_file.h: every byte of every key and tensor is
 * read here, so that AddressSanitizer finds one that does not lie in the file. The texts that are made of it must be JSON,
 * and config.json is read. */
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/formats/gguf_texts.h"
#include "engine/checkpoint/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t sum;

static void require(bool good)
{
	if (!good)
		abort();
}

static void use_key(const struct gguf_file *g, const struct gguf_key *k)
{
	const uint8_t *at = k->value;
	json_t *v = gguf_json(k);
	uint64_t n;

	require(k->name[0] && k->type < GGUF_TYPES && k->type != GGUF_ARRAY);
	require(k->array || k->n == 1);
	require(gguf_find(g, k->name) == k);
	require(!v || k->array == json_is_array(v));
	json_decref(v);
	for (uint64_t i = 0; i < k->n; i++) {
		size_t len = 0;

		sum += gguf_whole(k, i, &n);
		for (const char *text = k->type == GGUF_STRING ? gguf_next_string(&at, &len) : NULL;
		     len > 0; len--)
			sum += (unsigned char)text[len - 1];
	}
}

static void use_tensor(const struct gguf_file *g, size_t i, const uint8_t *end)
{
	const struct tensor *t = &g->tensors[i];
	const uint8_t *p = t->data;
	uint64_t n = 1;

	require(t->name[0] && strlen(t->name) <= TENSOR_NAME_MAX && t->type);
	require(t->n_dims >= 1 && t->n_dims <= 4 && t->bytes > 0 && p + t->bytes <= end);
	for (uint32_t k = 0; k < t->n_dims; k++)
		n *= t->shape[k];
	require(stored_bytes(t->type, n) == t->bytes);
	require(tensor_find(g->tensors, g->n_tensors, t->name) == t);
	for (size_t k = 0; k < t->bytes; k++)
		sum += p[k];
}

static void make_text(const struct gguf_file *g,
		      int (*make)(const struct gguf_source *s, struct buf *out, struct err *e),
		      bool json)
{
	const struct gguf_source s = {g, g->tensors, g->n_tensors};
	struct model_config c;
	struct err e = {0};
	struct buf out;
	json_t *v;
	int r;

	buf_init(&out, 1 << 24);
	r = make(&s, &out, &e);
	require(r == 0 || (e.code == -r && e.text[0]));
	if (r == 0 && json) {
		v = json_loadb(buf_str(&out), out.len, 0, NULL);
		require(v != NULL);
		json_decref(v);
	}
	if (r == 0 && make == gguf_config) {
		r = model_config_parse("config.json", buf_str(&out), out.len, NULL, 0, &c, &e);
		require(r == 0 || (e.code == -r && e.text[0]));
	}
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf_file g;
	struct err e = {0};
	int r = gguf_file_read("file", data, size, &g, &e);

	require(r == 0 || (e.code == -r && e.text[0]));
	for (size_t i = 0; r == 0 && i < g.n_keys; i++)
		use_key(&g, &g.keys[i]);
	for (size_t i = 0; r == 0 && i < g.n_tensors; i++)
		use_tensor(&g, i, data + size);
	if (r == 0) {
		make_text(&g, gguf_config, true);
		make_text(&g, gguf_generation, true);
		make_text(&g, gguf_tokenizer, true);
		make_text(&g, gguf_tokenizer_config, true);
		make_text(&g, gguf_template, false);
	}
	gguf_file_release(&g);
	return 0;
}
